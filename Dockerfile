# faultlab and its connector beside the vLLM of a public ROCm image. Not built by this project's CI.
#
#   docker build --tag faultlab .
#   docker build --build-arg IMAGE=rocm/vllm --build-arg TAG=... --tag faultlab .
#
# Nothing of the image is changed: faultlab is installed into an environment that sees what the image
# has (scripts/overlay_venv.sh), and the image's own vllm finds the connector by PYTHONPATH.
# mori comes with the image, as torch and vLLM do, and is not installed here; the preflight tells if
# an image has none.
ARG IMAGE=vllm/vllm-openai-rocm
ARG TAG=v0.33.0
FROM ${IMAGE}:${TAG}

WORKDIR /faultlab
COPY pyproject.toml LICENSE README.md ./
COPY connector connector
COPY sim sim
COPY faults faults
COPY hw_tests hw_tests
COPY docs docs
COPY scripts/overlay_venv.sh scripts/overlay_venv.sh
RUN scripts/overlay_venv.sh python3 /faultlab-venv --no-cache-dir . 'pytest>=8.3' \
    && cd / && /faultlab-venv/bin/python -c 'from importlib.util import find_spec as find; \
        assert find("connector.hybrid") and find("vllm") and find("torch")'

# The tests run from the sources here, and so does whoever enters the container.
ENV PYTHONPATH=/faultlab
ENV PATH=/faultlab-venv/bin:${PATH}
ENTRYPOINT []
CMD ["faultlab", "doctor", "--hardware"]
