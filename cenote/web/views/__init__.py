"""The views of the page: every module here defines a `router` with its HTTP endpoints.

A module has it all: endpoints, schemas of the responses, and requests with their code for the
worker. Modules of the worker import torch inside functions, because the server imports them, too.
"""

from importlib import import_module
from pkgutil import iter_modules

from fastapi import APIRouter


def routers() -> list[APIRouter]:
    names = sorted(module.name for module in iter_modules(__path__))
    return [import_module(f"{__name__}.{name}").router for name in names]
