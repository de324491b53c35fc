"""The same two files on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelHubMixin, snapshot_download

if TYPE_CHECKING:
    from .pooled import PooledModel


class Saved(ModelHubMixin, library_name="cenote", tags=["image-feature-extraction", "pooling"]):
    """`save(folder)`, `from_pretrained(folder or repository)`, `save_pretrained`, `push_to_hub`."""

    def save(self: Any, folder: str | Path) -> None:
        """Write config.json and model.safetensors into the folder; `cenote.load(folder)` reads
        them.
        """
        from .saving import save_model

        save_model(self, folder)

    def save_pretrained(
        self, save_directory: str | Path, *, push_to_hub: bool = False, **options: Any
    ) -> str | None:
        """As the mixin does, but it begins by deleting config.json, and a kill then would leave
        half a model.
        """
        folder = Path(save_directory)
        self.save(folder)
        if not (folder / "README.md").exists():
            self.generate_model_card(**(options.get("model_card_kwargs") or {})).save(
                folder / "README.md"
            )
        if not push_to_hub:
            return None
        return self.push_to_hub(options.pop("repo_id", None) or folder.name, **options)

    def _save_pretrained(self, save_directory: Path) -> None:
        self.save(save_directory)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, **options: Any
    ) -> PooledModel:
        """A model from a folder, or from a repository of the hub by name (revision=, token=,
        cache_dir=, ...).
        """
        return cls._from_pretrained(model_id=str(pretrained_model_name_or_path), **options)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> PooledModel:
        from .saving import CONFIG, WEIGHTS, load

        if Path(model_id).is_dir():
            return load(model_id)  # the network is not asked
        return load(snapshot_download(model_id, allow_patterns=[CONFIG, WEIGHTS], **options))
