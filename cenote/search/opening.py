"""An index with the model and the words that a question to it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .ask import Question, method_of
from .compose import find_method
from .judge import read_method
from .store import Store, open_store
from .words import WordMemory, load_words, remember_words

if TYPE_CHECKING:
    from ..models.image_text import ImageText


class Opened(NamedTuple):
    store: Store
    model: ImageText
    words: WordMemory | None


def choose_method(method: str, weight: float | None) -> tuple[str, dict[str, Any]]:
    """Its name and options, "freedom:k=5"; a weight of the text is `weicom:weight=X`."""
    if method == "auto":
        return method, {} if weight is None else dict(read_method(f"weicom:weight={weight}").options)
    asked = read_method(method if weight is None else f"{method}:weight={weight}")
    return asked.method, dict(asked.options)


def model_of(store: Store, exact: bool = True) -> ImageText:
    """The model that made an index; with faiss from here on, where it has such an index and need not be exact."""
    from ..models.image_text import create_image_text

    if not exact and (approximate := getattr(store, "open_approximate", None)):
        approximate()
    model = create_image_text(store.description.model)
    store.description.refuse_other(model, store.where)
    return model


def words_of(store: Store, model: ImageText, words: str | None = None) -> WordMemory:
    """The index's own word list, or another one, whose words the index does not know by heart."""
    kept = store.description.words
    memory = remember_words(model, load_words(words or kept.get("name") or None, model))
    if memory.digest != kept.get("digest"):
        if not words and kept:
            raise ValueError(
                f"the word list {kept['name']} is no more what {store.where} was made with: give it with --words"
            )
        store.forget_words()  # ids of another list
    return memory


def open_for(question: Question, index: str, words: str | None = None, exact: bool = False) -> Opened:
    """What this question needs; what is wrong with it is said before anything large is opened."""
    method_of(question, bool(words))
    store = open_store(index)
    method = method_of(question, bool(words or store.description.words))
    wanted = find_method(method).words
    if words and not wanted:
        raise ValueError(f"--words {words}: '{method}' reads no word list, freedom and searle do")
    if words:
        load_words(words)  # before the model, which takes longer
    model = model_of(store, exact)
    return Opened(store, model, words_of(store, model, words) if wanted else None)
