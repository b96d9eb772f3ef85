"""The calls of the control API for reset, seeding, settings, clock, balance and prices."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from fastapi import Body, FastAPI
from pydantic import BaseModel, Field, FiniteFloat

from cpaas_sandbox import scheduler
from cpaas_sandbox.control.seeding import Seeding, apply_seed
from cpaas_sandbox.core import state
from cpaas_sandbox.core.account import DEFAULT_PRICES, MAX_MONEY, to_amount
from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.core.settings import SETTINGS, choices
from cpaas_sandbox.core.validation import one_of

Money = Annotated[FiniteFloat, Field(ge=0, le=MAX_MONEY)]
Price = Annotated[str, one_of(DEFAULT_PRICES)]


class Reset(BaseModel, extra="forbid"):
    """Whether templates, contacts, lookups, outcomes, prices and settings stay."""

    keep_seeding: bool = False


class ClockChange(BaseModel, extra="forbid"):
    """A moment to set (ISO 8601 with offset), whether the clock is frozen, or `real` for real time."""

    now: dt.datetime | None = None
    frozen: bool | None = None
    real: bool = False


def add_setup(app: FastAPI, sandbox: Sandbox) -> None:
    """Add reset, seeding and settings."""

    @app.post("/_control/reset")
    async def reset(reset: Reset | None = None) -> dict[str, Any]:
        state.reset(sandbox, reset.keep_seeding if reset else False)
        return {"status": "ok", "settings": sandbox.settings.as_json()}

    @app.post("/_control/seed")
    async def seed(seeding: Seeding) -> dict[str, Any]:
        return {"seeded": apply_seed(sandbox, seeding)}

    @app.get("/_control/settings")
    async def get_settings() -> dict[str, Any]:
        return sandbox.settings.as_json()

    @app.get("/_control/settings/meaning")
    async def explain_settings() -> dict[str, Any]:
        return {
            name: {"default": setting.default, "means": setting.description, "choices": choices(name)}
            for name, setting in SETTINGS.items()
        }

    @app.put("/_control/settings")
    async def put_settings(settings: dict[str, Any]) -> dict[str, Any]:
        state.change(sandbox, settings)
        state.reload(sandbox)
        return sandbox.settings.as_json()


def add_time_and_money(app: FastAPI, sandbox: Sandbox) -> None:
    """Add the clock, the balance and the prices."""

    @app.get("/_control/clock")
    async def get_clock() -> dict[str, Any]:
        return sandbox.clock.as_json()

    @app.put("/_control/clock")
    async def put_clock(change: ClockChange) -> dict[str, Any]:
        if change.now is not None and change.now.tzinfo is None:
            raise ValueError("now: give the moment with its UTC offset")
        if change.real:
            sandbox.clock.reset()
        if not change.real or change.now is not None or change.frozen is not None:
            sandbox.clock.set(change.now.timestamp() if change.now else None, change.frozen)
        return _time_moved(sandbox)

    @app.post("/_control/clock/advance")
    async def advance(seconds: Annotated[FiniteFloat, Body(embed=True, ge=-1e9, le=1e9)]) -> dict[str, Any]:
        sandbox.clock.set(sandbox.clock.now() + seconds)
        return _time_moved(sandbox)

    @app.put("/_control/balance")
    async def put_balance(balance: Annotated[Money, Body(embed=True)]) -> dict[str, Any]:
        sandbox.account.set_balance(balance)
        return {"balance": to_amount(sandbox.account.balance)}

    @app.get("/_control/prices")
    async def get_prices() -> dict[str, Any]:
        return {name: to_amount(price) for name, price in sandbox.account.prices.items()}

    @app.put("/_control/prices")
    async def put_prices(prices: dict[Price, Money]) -> dict[str, Any]:
        sandbox.account.set_prices(prices)
        return await get_prices()


def _time_moved(sandbox: Sandbox) -> dict[str, Any]:
    state.wake(sandbox)
    scheduler.tick(sandbox)
    return sandbox.clock.as_json()
