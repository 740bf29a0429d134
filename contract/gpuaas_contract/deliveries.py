"""Deliveries: an artifact handed out for a task, with a token of minutes that opens this one and nothing else."""

from typing import Annotated

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.artifacts import FETCHING_ERRORS, HANDING_OUT_ERRORS
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import Label, NoBody, OptionalLabel, Request, Timestamp, Wire

DELIVERY_TTL_MAX_S = 900
CONTENT_PATH = "/api/v1/artifact-content/{delivery_id}"


class CreateDelivery(Request):
    """Asks for a token of minutes that fetches one artifact."""

    purpose: Label
    """What it is for, in the words of whoever asks: it is on the record."""
    operation_id: OptionalLabel = ""
    """What it is for, when that is an operation: it is on the record."""
    ttl_s: Annotated[int, msgspec.Meta(ge=1, le=DELIVERY_TTL_MAX_S)] = 300
    """How long the token opens the content, in seconds."""


class Delivery(Wire):
    """What to fetch one artifact with, for some minutes."""

    delivery_id: str
    artifact_id: str
    url: str
    """Path under this API; GET it with the token as bearer."""
    token: str
    """Shown once; the platform keeps a digest only."""
    expires_at: Timestamp
    digest: str
    size_bytes: int
    media_type: str


DELIVERY_CREATE = Endpoint(
    "artifacts.delivery.create",
    "POST",
    "/api/v1/projects/{project_id}/artifacts/{artifact_id}/deliveries",
    "A token of minutes to fetch an artifact with: the project's own or a shared one",
    permission="artifacts.artifact.deliver",
    request=CreateDelivery,
    response=Delivery,
    subject="delivery_id",
    status=201,
    secret_answer=True,
    errors=HANDING_OUT_ERRORS,
    example={"purpose": "install"},
)
CONTENT_GET = Endpoint(
    "artifacts.content.get",
    "GET",
    CONTENT_PATH,
    "The bytes of a delivery, with its token as bearer; the connection breaks off when they are not those published",
    audience="public",
    request=NoBody,
    response=bytes,
    media_type="application/octet-stream",
    errors=(*FETCHING_ERRORS, errors.DeliveryExpired, errors.DeliveryUnknown),
)
ENDPOINTS = (DELIVERY_CREATE, CONTENT_GET)
