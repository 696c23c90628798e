"""Errors of the connector, one class for each thing that an operator or a peer can get wrong."""

from __future__ import annotations


class ConnectorError(Exception):
    """Anything that the connector refuses; the message names the value and the remedy."""


class ConfigError(ConnectorError, ValueError):
    """A setting that cannot be used. The engine does not start."""


class UnsupportedModel(ConnectorError):
    """Cache groups that cannot be transferred. The engine does not start."""


class MalformedPayload(ConnectorError, ValueError):
    """Transfer parameters that do not describe what the peer holds. The request's load fails."""


class ForeignOffer(MalformedPayload):
    """Transfer parameters of another prompt, so that their blocks are another request's."""


class PeerMismatch(ConnectorError):
    """A peer whose caches differ from ours, found in the handshake. Nothing is read from it."""
