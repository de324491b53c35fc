"""Run frozen networks on the CPU with OpenVINO, which is faster than PyTorch with equal results.

A network is converted once for each size of its images, and the converted network is cached. That
takes seconds, so PyTorch computes the first images of a process. It also computes everything
if OpenVINO is missing, cannot convert the network, or gives other results.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import platform
import shutil
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from filelock import FileLock
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from ..backbones import Features
from ..data.digests import digest_of
from ..data.files import temporary_path, write_text
from ..models.image_text import ImageNetwork, ImageText
from .cache_folder import cache_folder, weights_digest

log = logging.getLogger(__name__)
# Pixels of images of one size, from which converting the network, or loading the converted one, pays.
# Whether it is in the cache does not count: the same command gives the same results again.
MIN_PIXELS = 64 * 224**2
MIN_COUNTED = 4  # images that a call counts as: the page asks for one at a time, many times
TOLERANCE = 1e-3  # relative difference from PyTorch
CHECKED = 3  # images that PyTorch computes, too; the network is traced with 2
MAX_CHANGES = 1  # of a network's weights: it is converted again, but not in every epoch
MAX_CACHED = 20  # converted networks; those not used for the longest time are removed
XML, WEIGHTS = "model.xml", "model.bin"
Size = tuple[int, ...]
State = list[tuple[object, ...]]


def run_frozen(network: nn.Module, images: Tensor) -> Any:
    """Return `network(images)`, faster for many images on the CPU.

    `network` returns a tensor, a tuple of tensors or `Features`. With gradients, in training mode,
    under autocast and with hooks it is PyTorch that computes them. Weights may change in place or by
    `load_state_dict`, but not through `.data`, which cannot be noticed.
    """
    with _use_threads(_network_threads.get() or torch.get_num_threads()):
        if (
            not cpu_is_supported()
            or _only_pytorch.get()
            or torch.is_grad_enabled()
            or network.training
            or images.device.type != "cpu"
            or images.dtype != torch.float32
            or torch.is_autocast_enabled("cpu")
            or not len(images)
        ):
            return network(images)
        if network not in _engines:
            _engines[network] = NetworkRunner()
        return _engines[network].run(network, images)


@cache
def cpu_is_supported() -> bool:
    """Return False for x86 CPUs without AVX2: OpenVINO may crash if oneDNN is limited to SSE."""
    x86 = platform.machine() in ("x86_64", "AMD64")
    return not x86 or torch.backends.cpu.get_cpu_capability() != "DEFAULT"


_only_pytorch = ContextVar("_only_pytorch", default=False)


@contextmanager
def only_pytorch() -> Iterator[None]:
    """Do not convert networks: their weights are about to change, as in a validation."""
    token = _only_pytorch.set(True)
    try:
        yield
    finally:
        _only_pytorch.reset(token)


_network_threads: ContextVar[int | None] = ContextVar("_network_threads", default=None)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread of PyTorch, and as many as before inside of `run_frozen`.

    Threads wait for each other after each operation: for the small ones of a single image that
    takes longer than the operation, above all if other processes use the cores.
    """
    token = _network_threads.set(torch.get_num_threads())
    try:
        with _use_threads(1):
            yield
    finally:
        _network_threads.reset(token)


@contextmanager
def _use_threads(count: int) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def embed_images(model: ImageText, pixels: Tensor) -> Tensor:
    """Return `model.embed_images(pixels)`, faster for many images on the CPU."""
    if not isinstance(model, ImageNetwork):
        return model.embed_images(pixels)
    with torch.no_grad():
        return model.embed_output(run_frozen(model.image_network, pixels))


class NetworkRunner:
    """Run one network: with PyTorch at first, and with OpenVINO once there are enough images."""

    def __init__(self) -> None:
        self.state: State | None = None
        self.changes = 0
        self.digest = ""  # of the weights
        self.pixels: Counter[Size] = Counter()  # computed so far, by the size of the images
        self.converted: dict[tuple[Size, int], ConvertedNetwork] = {}  # by size and threads
        self.failed: set[Size] = set()
        self.lock = threading.Lock()

    def run(self, network: nn.Module, images: Tensor) -> Any:
        state, size = _state(network), tuple(images.shape[1:])
        usable = size not in self.failed and self.changes <= MAX_CHANGES
        if state is not None and usable and _process_can_convert():
            try:
                with self.lock:
                    if converted := self._converted(network, images, state):
                        return converted(images)
            except Exception as error:  # whatever it is, PyTorch can do without
                log.debug("PyTorch runs the network, not OpenVINO: %s", error)
                self.failed.add(size)
        # Convolutions are faster in this order.
        return network(images.contiguous(memory_format=torch.channels_last))

    def _converted(
        self, network: nn.Module, images: Tensor, state: State
    ) -> ConvertedNetwork | None:
        """Return the converted network, None if there were too few images."""
        if self.state is not None and state != self.state:
            self.changes += 1
            self.digest = ""
            self.pixels.clear()
            self.converted.clear()
            if self.changes > MAX_CHANGES:
                return None
        self.state = state
        size, threads = tuple(images.shape[1:]), torch.get_num_threads()
        if (size, threads) in self.converted:
            return self.converted[size, threads]
        self.pixels[size] += max(len(images), MIN_COUNTED) * size[1] * size[2]
        if self.pixels[size] < MIN_PIXELS:
            return None
        self.digest = self.digest or weights_digest(network)
        cached = CachedNetwork(network, self.digest, size)
        self.converted[size, threads] = ConvertedNetwork(network, images, cached, threads)
        return self.converted[size, threads]


_engines: WeakKeyDictionary[nn.Module, NetworkRunner] = WeakKeyDictionary()


class ConvertedNetwork:
    """A network for images of one size, compiled by OpenVINO and compared with PyTorch."""

    def __init__(
        self, network: nn.Module, images: Tensor, cached: CachedNetwork, threads: int
    ) -> None:
        with _use_threads(1):
            self.structure = network(images[:CHECKED])
        if not isinstance(self.structure, Tensor | Features):
            tensors = type(self.structure) is tuple and _tensors(self.structure)
            if not tensors or len(tensors) < len(self.structure):
                raise ValueError("the network does not return tensors only")
        for convert_again in (False, True):  # what is in the cache may be of another network
            with _use_threads(1):
                model = cached.read_or_convert(network, images, convert_again)
            self.request = _compile(model, threads).create_infer_request()
            difference = _difference(self.structure, self(images[:CHECKED]))
            if difference <= TOLERANCE:
                return
        raise ValueError(f"the results differ by {difference:.1e}")

    def __call__(self, images: Tensor) -> Any:
        results = self.request.infer([images.contiguous().numpy()], share_inputs=True)
        outputs = [torch.from_numpy(results[i]) for i in range(len(results))]
        if any(len(output) != len(images) for output in outputs):
            raise ValueError("the number of images is fixed in the converted network")
        if isinstance(self.structure, Features):
            names = list(self.structure.tensors())
            tensors: dict[str, Any] = dict(zip(names, outputs, strict=True))
            return self.structure._replace(**tensors)
        if isinstance(self.structure, Tensor):
            return outputs[0]
        return tuple(outputs)


class _Outputs(nn.Module):
    """A network whose output is a tuple of tensors."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return _tensors(self.network(images))


def _tensors(output: Any) -> tuple[Tensor, ...]:
    if isinstance(output, Tensor):
        return (output,)
    return tuple(value for value in output if isinstance(value, Tensor))


def _difference(expected: Any, output: Any) -> float:
    """Return the largest relative difference of an image's outputs."""
    pairs = zip(_tensors(expected), _tensors(output), strict=True)
    errors = [(b - a).flatten(1).norm(dim=1) / a.flatten(1).norm(dim=1) for a, b in pairs]
    return float(torch.cat(errors).max())  # NaN is not below the tolerance


def _state(network: nn.Module) -> State | None:
    """Return what changes when the network does; None if it must run in PyTorch.

    A layer in training mode, or with a hook, must.
    """
    state: State = []
    for module in network.modules():
        if module.training or module._forward_hooks or module._forward_pre_hooks:
            return None
        state.append((id(module), type(module), module.extra_repr()))
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                version = 0 if tensor.is_inference() else tensor._version
                state.append((tensor.data_ptr(), version))
    return state


class CachedNetwork:
    """The files of a converted network, in a folder named by everything that changes them."""

    def __init__(self, network: nn.Module, weights: str, size: Size) -> None:
        self.made_by = {
            "backbone": getattr(network, "name", type(network).__name__),
            "weights": weights,
            "structure": digest_of(repr(network).encode()).hex(),
            "image": list(size),
            "engine": f"OpenVINO {_openvino().get_version()}",
        }
        self.folder = cache_folder() / digest_of(json.dumps(self.made_by).encode()).hex()

    def read_or_convert(self, network: nn.Module, images: Tensor, convert_again: bool) -> Any:
        """Read the model; convert the network if the files are missing or damaged."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / "lock"):
                if convert_again or not self._is_intact():
                    self._describe({})  # `cenote cache` lists it, should this process be killed
                    self._save(_convert(network, images))
                    self._remove_others()
                os.utime(self.folder / "store.json")  # the time of last use
                return _core().read_model(self.folder / XML)
        except OSError as error:
            log.debug("the converted network is not cached: %s", error)
            return _convert(network, images)

    def _is_intact(self) -> bool:
        try:
            digests = json.loads((self.folder / "store.json").read_text())["files"]
            return all(digests[name] == _file_digest(self.folder / name) for name in (XML, WEIGHTS))
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _save(self, model: Any) -> None:
        """Replace the files; processes that have the old ones open keep them."""
        temporary = temporary_path(self.folder)
        temporary.mkdir()
        try:
            _openvino().save_model(model, temporary / XML, compress_to_fp16=False)
            files = {name: _file_digest(temporary / name) for name in (XML, WEIGHTS)}
            for name in files:
                os.replace(temporary / name, self.folder / name)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._describe(files)

    def _describe(self, files: dict[str, str]) -> None:
        description = {"made_by": self.made_by, "layout": {}, "files": files}
        write_text(self.folder / "store.json", json.dumps(description, indent=2))

    def _remove_others(self) -> None:
        """Remove the networks not used for the longest time; open ones remain readable."""
        files = [path for path in self.folder.parent.glob(f"*/{XML}") if path.parent != self.folder]
        used = {path.parent: (path.parent / "store.json").stat().st_mtime for path in files}
        for folder in sorted(used, key=lambda folder: -used[folder])[MAX_CACHED - 1 :]:
            shutil.rmtree(folder, ignore_errors=True)


def _file_digest(path: Path) -> str:
    return digest_of(path.read_bytes()).hex()


def _convert(network: nn.Module, images: Tensor) -> Any:
    """Trace the network and translate it, for any number of images of this size."""
    _openvino()
    frontend = import_module("openvino.frontend").FrontEndManager().load_by_framework("pytorch")
    decoder = import_module("openvino.frontend.pytorch.ts_decoder").TorchScriptPythonDecoder
    pair = images[:1].expand(2, -1, -1, -1).contiguous()
    network = _with_resized_positions(network, images.shape[2], images.shape[3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about values that are constant for one size of images
        traced = decoder(_Outputs(network), example_input=pair, trace_kwargs={"check_trace": False})
        model = frontend.convert(frontend.load(traced))
    model.reshape(_openvino().PartialShape([-1, *images.shape[1:]]))
    return model


def _with_resized_positions(network: nn.Module, height: int, width: int) -> nn.Module:
    """Copy the network with position embeddings for images of this size.

    OpenVINO resizes them in another way than PyTorch: features of a ViT differ by 4%.
    """
    network = copy.deepcopy(network)
    for module in network.modules():
        if isinstance(module, VisionTransformer):
            module.set_input_size(img_size=(height, width))
    return network


def _compile(model: Any, threads: int) -> Any:
    settings = {
        "PERFORMANCE_HINT": "LATENCY",  # all threads for one request
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "ENABLE_CPU_PINNING": False,  # other processes may use the same cores
    }
    return _core().compile_model(model, "CPU", settings)


_process_id: int | None = None  # of the process that started OpenVINO


def _process_can_convert() -> bool:
    """Return False after a fork: the threads of OpenVINO are in the parent only."""
    return _process_id in (None, os.getpid())


@cache
def _core() -> Any:
    global _process_id
    _process_id = os.getpid()
    return _openvino().Core()


@cache
def _openvino() -> Any:
    """Import OpenVINO without the package that reports its use to the manufacturer.

    `import openvino` sends an event, unless that package cannot be imported. So does
    `convert_model`, which is therefore not used.
    """
    telemetry = sys.modules.get("openvino_telemetry")
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    try:
        return import_module("openvino")
    finally:
        del sys.modules["openvino_telemetry"]
        if telemetry is not None:
            sys.modules["openvino_telemetry"] = telemetry
