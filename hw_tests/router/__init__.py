"""The router (proxy) in front of prefill and decode engines that hand over by READ.

Its source is the reference for what a router in front of ``HybridReadConnector`` or vLLM's MoRIIO
has to do and to forward: ``legs`` says what each engine is sent, ``exchange`` in which order, and
``discovery`` how engines announce themselves. It needs aiohttp, msgspec and pyzmq, all of which
come with vLLM, and neither vLLM nor the rest of this project.
"""
