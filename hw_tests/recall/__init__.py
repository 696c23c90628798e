"""Whether a model that decodes from a hand-over remembers as much as one that prefilled itself.

Codes are hidden in long texts, which are made from a seed. The same questions are asked through a
router and of a colocated server (the control), each twice: the second time the decode engine has
the whole prompt. It needs aiohttp and prometheus_client, both of which come with vLLM.
"""
