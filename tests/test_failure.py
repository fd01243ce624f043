from marian_jobs.failure import LONGEST, describe, storable


def caught(raise_it: object) -> BaseException:
    try:
        password = "S3CRET-1"
        assert password
        raise raise_it  # type: ignore[misc]
    except BaseException as e:
        return e


def test_an_error_names_type_message_and_place() -> None:
    text = describe(caught(ValueError("bad")))
    assert text.splitlines()[0] == "ValueError: bad"
    assert "test_failure.caught, line" in text


def test_local_variables_stay_out_of_the_text() -> None:
    assert "S3CRET" not in describe(caught(RuntimeError("x")))


def test_what_postgres_cannot_store_is_replaced() -> None:
    assert describe(caught(ValueError("a\0b\ud800c"))).startswith("ValueError: a\ufffdb\ufffdc")


def test_a_long_text_keeps_head_and_tail() -> None:
    text = storable("head" + "x" * 100_000 + "tail")
    assert len(text) == LONGEST
    assert (text[:4], text[-4:]) == ("head", "tail")


def test_an_exception_that_cannot_be_printed_is_still_told() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert describe(Broken()) == "Broken: (its message could not be read: RuntimeError)"


def test_an_error_without_a_message_is_its_type() -> None:
    assert describe(KeyboardInterrupt()) == "KeyboardInterrupt"
