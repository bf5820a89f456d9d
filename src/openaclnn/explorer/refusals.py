"""What a request is refused with: a status of HTTP and a sentence."""

from __future__ import annotations

__all__ = ["Refused"]


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """A request that is not served; the page shows the sentence beside the field that it is about."""

    def __init__(
        self, status: int, sentence: str, parameter: str = "", field: str = "", allow: str = ""
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.allow = allow  # the methods that are served
        self.told = {"error": sentence}
        if parameter:
            self.told |= {"parameter": parameter, "field": field}
