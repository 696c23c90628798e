# faultlab and its connector beside the vLLM of a public ROCm image. Not built by this project's CI.
#
#   docker build --tag faultlab .
#   docker build --build-arg IMAGE=rocm/vllm --build-arg TAG=... --tag faultlab .
#
# torch, vLLM and mori are the image's own and stay as they are: what is installed there is a
# constraint for everything that comes in, so that the build fails rather than moves a package.
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
RUN python3 -m pip list --format=freeze > installed.txt \
    && python3 -m pip install --no-cache-dir --constraint installed.txt . 'pytest>=8.3' \
    && cd / && python3 -c 'from importlib.util import find_spec; assert find_spec("connector.hybrid")'

# The tests run from the sources here, and so does whoever enters the container.
ENV PYTHONPATH=/faultlab
ENTRYPOINT []
CMD ["faultlab", "doctor", "--hardware"]
