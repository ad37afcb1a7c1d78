"""A client of DeepCitation, as small as what is published of its own: the same calls, the same requests, the
same errors. It knows an address, and nothing of us.

Like its model it takes one request for each attachment, and gives up all when one of them is refused.
"""

from __future__ import annotations

from hashlib import sha1
from types import TracebackType
from typing import Any, Self

import httpx2

Json = dict[str, Any]

_TIMEOUT = 60.0


class DeepCitationError(Exception):
    """What was refused: the code of the published client, and what the server said."""

    code = "DC_ERROR"
    is_retryable = False

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class AuthenticationError(DeepCitationError):
    code = "DC_AUTH_INVALID"


class RateLimitError(DeepCitationError):
    code, is_retryable = "DC_RATE_LIMITED", True


class ValidationError(DeepCitationError):
    code = "DC_VALIDATION_ERROR"


class ServerError(DeepCitationError):
    code, is_retryable = "DC_SERVER_ERROR", True


def _error(response: httpx2.Response) -> DeepCitationError:
    status = response.status_code
    kind = ValidationError
    if status in (401, 403):
        kind = AuthenticationError
    elif status == 429:
        kind = RateLimitError
    elif status >= 500:
        kind = ServerError
    return kind(response.json()["error"]["message"], status)


def citation_key(citation: Json) -> str:
    """The key of a citation of a document."""
    page, lines = citation.get("pageNumber"), citation.get("lineIds", [])
    parts = (citation.get("fullPhrase"), citation.get("anchorText"), page and str(page))
    joined = "|".join([*(part or "" for part in parts), ",".join(map(str, lines))])
    return sha1(joined.encode(), usedforsecurity=False).hexdigest()[:16]


class DeepCitation:
    """`with DeepCitation(api_key, api_url) as client`."""

    def __init__(self, api_key: str, api_url: str) -> None:
        if not api_key:
            raise AuthenticationError("an API key is needed", 401)
        headers = {"Authorization": f"Bearer {api_key}"}
        self._http = httpx2.Client(
            base_url=api_url.removesuffix("/"), headers=headers, timeout=_TIMEOUT, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def upload_file(self, data: bytes, filename: str = "document", **fields: str) -> Json:
        form = {"filename": filename, **fields}
        return self.send("POST", "/prepareAttachments", files={"file": (filename, data)}, data=form)

    def prepare_attachments(self, files: list[tuple[bytes, str]]) -> Json:
        attachments = [self.upload_file(data, name) for data, name in files]
        parts = [
            {"attachmentId": each["attachmentId"], "filename": each["metadata"]["filename"]}
            for each in attachments
        ]
        portion = "\n\n".join(each["deepTextPromptPortion"] for each in attachments)
        return {"fileDataParts": parts, "deepTextPromptPortion": portion, "attachments": attachments}

    def prepare_url(self, url: str, **options: Any) -> Json:
        return self.send("POST", "/prepareAttachments", json={"url": url, **options})

    def convert_to_pdf(self, data: bytes, filename: str) -> Json:
        return self.send("POST", "/convertFile", files={"file": (filename, data)})

    def prepare_converted_file(self, attachment_id: str) -> Json:
        return self.send("POST", "/prepareAttachments", json={"attachmentId": attachment_id})

    def verify_attachment(self, attachment_id: str, citations: list[Json], form: str = "avif") -> Json:
        data = {
            "attachmentId": attachment_id,
            "citations": {citation_key(each): each for each in citations},
            "outputImageFormat": form,
            "endUserId": "somebody",
        }
        return self.send("POST", "/verifyCitations", json={"data": data})["verifications"]

    def verify(self, citations: list[Json], form: str = "avif") -> Json:
        """All citations, each in its attachment; those of none are skipped."""
        found: Json = {
            citation_key(each): {"status": "skipped"} for each in citations if not each.get("attachmentId")
        }
        for name in dict.fromkeys(each["attachmentId"] for each in citations if each.get("attachmentId")):
            own = [each for each in citations if each.get("attachmentId") == name]
            found |= self.verify_attachment(name, own, form)
        return found

    def get_attachment(self, attachment_id: str) -> Json:
        return self.send("POST", "/getAttachment", json={"attachmentId": attachment_id})

    def extend_expiration(self, attachment_id: str, duration: str) -> Json:
        return self.send("POST", f"/attachments/{attachment_id}/extend", json={"duration": duration})

    def delete_attachment(self, attachment_id: str) -> Json:
        return self.send("DELETE", f"/attachments/{attachment_id}")

    def send(self, method: str, path: str, **body: Any) -> Json:
        """One request, as all of them are made. Raises `DeepCitationError`."""
        response = self._http.request(method, path, **body)
        if not response.is_success:
            raise _error(response)
        return response.json()
