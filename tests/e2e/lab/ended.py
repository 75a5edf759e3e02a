"""A mitmproxy script: says in the log when an exchange has ended without an answer."""

import logging

from mitmproxy.http import HTTPFlow

logger = logging.getLogger(__name__)


def error(flow: HTTPFlow) -> None:
    logger.info("lab: ended %s%s", flow.request.host, flow.request.path)
