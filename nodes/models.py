"""The chat model behind a name: the built-in one, or any OpenAI-compatible endpoint. Heavy clients load on use."""

from __future__ import annotations

import asyncio
import difflib
import os
from typing import Any

from langchain_core.caches import BaseCache
from langchain_core.language_models import BaseChatModel

from .context import OFFLINE, RoleModel
from .endpoint import EndpointError, Fault, fault_of

KEYLESS = "EMPTY"
"""Sent to a local server when no key is set; such servers take anything."""


def chat_model(settings: RoleModel, name: str, cache: BaseCache | None = None) -> BaseChatModel:
    """The model of that name with a role's settings. Retries, timeouts and rates are the endpoint's business.

    Raises:
        EndpointError: a hosted model without a key.
    """
    if name == OFFLINE:
        from .offline import OfflineChatModel

        return OfflineChatModel()
    from .reasoning import ReasoningChatOpenAI

    options: dict[str, Any] = {}
    if settings.reasoning_effort:
        options["reasoning_effort"] = settings.reasoning_effort
    if settings.extra_body:
        options["extra_body"] = settings.extra_body
    return ReasoningChatOpenAI(
        model=name,
        base_url=settings.base_url,
        api_key=_key(settings),
        temperature=settings.temperature,
        max_tokens=settings.max_output_tokens,
        timeout=settings.timeout_s,
        max_retries=0,
        # Chat Completions is the one protocol that every compatible server speaks.
        use_responses_api=False,
        cache=cache if cache is not None else False,
        **options,
    )


def _key(settings: RoleModel) -> Any:
    key = os.environ.get(settings.api_key_env)
    if not key and settings.base_url is None:
        raise EndpointError(
            Fault.REFUSED,
            f"no key for {settings.models[0]}: set the environment variable {settings.api_key_env}, "
            "or name an endpoint that needs none by base_url",
        )
    return key or KEYLESS


def endpoint_name(settings: RoleModel, name: str) -> str:
    """What to call a model's endpoint in messages."""
    return OFFLINE if name == OFFLINE else settings.base_url or "https://api.openai.com/v1"


async def check_endpoint(settings: RoleModel) -> None:
    """See that the endpoint is there, takes the key and knows the models, before anything is spent.

    Raises:
        EndpointError: one line that says which of these is not so.
    """
    hosted = [name for name in settings.models if name != OFFLINE]
    if not hosted:
        return
    where = endpoint_name(settings, hosted[0])
    client: Any = await asyncio.to_thread(chat_model, settings, hosted[0])
    try:
        listed = await client.root_async_client.with_options(
            timeout=min(settings.timeout_s, 30.0)
        ).models.list()
        known = [model.id for model in listed.data or []]
    except Exception as error:
        fault = fault_of(error)
        status = next((s for s in (getattr(error, "status_code", None),) if s), None)
        if status in (401, 403):
            raise EndpointError(
                Fault.REFUSED, f"{where} refuses the key in {settings.api_key_env} (HTTP {status})"
            ) from error
        if fault is Fault.UNREACHABLE or fault is Fault.TIMEOUT:
            raise EndpointError(fault, f"{where} cannot be reached: {error}") from error
        # Some endpoints keep no list; the first call will tell.
        return
    for name in hosted:
        if known and name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[:3]
            raise EndpointError(
                Fault.REFUSED,
                f"{where} has no model {name!r}; the nearest of its {len(known)}: {', '.join(near)}",
            )
