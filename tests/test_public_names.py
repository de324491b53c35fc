"""The exported names of the packages change on purpose (`make names`) or not at all."""

import json

import cenote
from tests.public_names import LIST, public_names


def test_public_names_are_the_checked_in_ones() -> None:
    expected = json.loads(LIST.read_text(encoding="utf-8"))
    assert public_names() == expected, (
        "run `make names` if the change is meant, and say so in CHANGELOG.md"
    )


def test_the_package_offers_what_it_lists() -> None:
    for name in cenote.__all__:
        assert getattr(cenote, name) is not None
    assert set(cenote.__all__) <= set(dir(cenote))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(cenote, "creat_pool")  # hasattr relies on AttributeError and nothing else
