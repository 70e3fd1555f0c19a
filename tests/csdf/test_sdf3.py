"""SDF3 XML in and out, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csdf.errors import CsdfError
from csdf.execution.liveness import check_liveness
from csdf.formats import sdf3
from csdf.model.graph import Actor, Channel, Graph
from csdf.timing.throughput import throughput
from tests.csdf.graphs import consistent_graphs

SMALL = """<?xml version="1.0"?>
<sdf3 type="csdf" version="1.0">
 <applicationGraph name="app">
  <csdf name="small" type="small">
   <actor name="A" type="a"><port type="out" name="p" rate="1,2,1"/></actor>
   <actor name="B" type="b"><port type="in" name="p" rate="2"/></actor>
   <channel name="c" srcActor="A" srcPort="p" dstActor="B" dstPort="p" initialTokens="3"/>
  </csdf>
  <csdfProperties>
   <actorProperties actor="A">
    <processor type="dsp"><executionTime time="1,1,1"/></processor>
    <processor type="arm" default="true"><executionTime time="2"/></processor>
   </actorProperties>
   <actorProperties actor="B"><processor type="arm"><executionTime time="0.25"/></processor>
   </actorProperties>
   <channelProperties channel="c"><tokenSize sz="12"/></channelProperties>
  </csdfProperties>
 </applicationGraph>
</sdf3>
"""


def parse(text: str) -> Graph:
    return sdf3.parse(text.encode(), "small.xml")


def test_reading() -> None:
    two = Fraction(2)
    assert parse(SMALL) == Graph(
        "small",
        (Actor("A", (two, two, two)), Actor("B", (Fraction(1, 4),))),
        (Channel("c", "A", "B", (1, 2, 1), (2,), 3, None, 2),),
    )


def test_execution_times_of_another_processor() -> None:
    times = {a.name: a.execution_times for a in sdf3.parse(SMALL.encode(), processor="dsp").actors}
    assert times == {"A": (1, 1, 1), "B": (Fraction(1, 4),)}


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("1,2,1", (1, 2, 1)),
        (" 1 , 2 , 1 ", (1, 2, 1)),
        ("2*5,0", (5, 5, 0)),
        ("7", (7, 7, 7)),
        ("3*0,1,2*1", (0, 0, 0, 1, 1, 1)),
        ("1000000000", (10**9,) * 3),
    ],
)
def test_lists_run_lengths_and_single_values(text: str, rates: tuple[int, ...]) -> None:
    graph = parse(SMALL.replace("1,2,1", text).replace('time="1,1,1"', 'time="1"'))
    assert graph.channels[0].production == rates[: len(graph.channels[0].production)]
    assert len(graph.channels[0].production) == max(len(text.split(",")), graph.actors[0].phases)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2", 2),
        ("0", 0),
        ("0.1", Fraction(1, 10)),
        ("1e-3", Fraction(1, 1000)),
        ("4.2E+07", 42_000_000),
        (".5", Fraction(1, 2)),
        ("3.", 3),
        ("5/3", Fraction(5, 3)),
    ],
)
def test_times_are_read_exactly(text: str, time: Fraction) -> None:
    assert parse(SMALL.replace("0.25", text)).actors[1].execution_times == (time,)


class TestSeveralProcessors:
    """SDF3's H.263 encoder gives some actors two, both of them the default one."""

    def times_of_a(self, dsp: str, arm: str, processor: str | None = None) -> tuple[Fraction, ...]:
        text = SMALL.replace(' default="true"', arm)
        text = text.replace('<processor type="dsp"', f'<processor type="dsp"{dsp}')
        return sdf3.parse(text.encode(), processor=processor).actors[0].execution_times

    @pytest.mark.parametrize(
        ("dsp", "arm", "time"),
        [
            (' default="true"', "", 1),
            (' default="1"', ' default="false"', 1),
            (' default="true"', ' default="true"', 2),
        ],
    )
    def test_the_default_one_counts_the_last_of_several(
        self, dsp: str, arm: str, time: int
    ) -> None:
        assert self.times_of_a(dsp, arm) == (Fraction(time),) * 3

    def test_without_a_default_one_is_to_be_named(self) -> None:
        with pytest.raises(sdf3.Sdf3Error, match=r"line 10: .* 'dsp', 'arm', and none is"):
            self.times_of_a("", "")
        assert self.times_of_a("", "", "dsp") == (Fraction(1),) * 3

    def test_a_single_one_need_not_be_the_default(self) -> None:
        assert parse(SMALL).actors[1].execution_times == (Fraction(1, 4),)


def test_an_sdf_graph_is_the_case_of_one_phase() -> None:
    text = SMALL.replace("csdf", "sdf").replace("1,2,1", "4").replace("1,1,1", "1")
    graph = parse(text)
    assert [actor.phases for actor in graph.actors] == [1, 1]
    assert graph.channels[0].production == (4,)


plain = consistent_graphs(bounded=False).map(
    lambda g: replace(g, actors=tuple(replace(a, concurrency=None) for a in g.actors))
)
names = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="￾￿"), min_size=1)


@given(plain)
def test_what_is_written_is_read_back_the_same(graph: Graph) -> None:
    assert parse(sdf3.write(graph)) == graph


@given(consistent_graphs())
def test_capacities_and_bounds_come_back_as_channels_that_behave_the_same(graph: Graph) -> None:
    back = parse(sdf3.write(graph))
    again = parse(sdf3.write(back))
    assert again == back
    assert (check_liveness(back) is None) == (check_liveness(graph) is None)
    if check_liveness(graph) is None:
        assert throughput(back).period == throughput(graph).period


@given(names, names)
def test_any_name_survives(actor: str, channel: str) -> None:
    one = Graph(
        "", (Actor(actor, (Fraction(1, 3),)),), (Channel(channel, actor, actor, (1,), (1,), 1),)
    )
    assert parse(sdf3.write(one)) == one


def test_a_name_that_xml_cannot_hold() -> None:
    with pytest.raises(CsdfError, match=r"'a\\x00b' has a control character"):
        sdf3.write(Graph("a\0b", (), ()))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("<sdf3 ", "<sdf4 ", "not well-formed XML: line 19: mismatched tag"),
        ("sdf3", "sdf4", "line 2: the root element is 'sdf4', not 'sdf3'"),
        ('type="csdf"', 'type="sadf"', "line 2: graphs of type 'sadf' cannot be read"),
        ("applicationGraph", "app", "line 2: has 0 application graphs instead of one"),
        ('time="2"', 'time="2,2"', "line 12: 2 times for the 3 phases of actor 'A'"),
        ('time="2"', 'time="4*2"', "line 5: 3 rates for the 4 phases of actor 'A'"),
        ("1,2,1", "1,-2,1", "line 5: rate '1,-2,1' is not a list of numbers"),
        ("1,2,1", "1,,1", "line 5: rate '1,,1' is not a list of numbers"),
        ("1,2,1", "", "line 5: rate '' is not a list of numbers"),
        ("1,2,1", "0*1", "line 5: rate '0*1' lists no phase"),
        ("1,2,1", "0,0,0", "channel 'c': all rates of its source are zero"),
        ("1,2,1", "9999999999999999999", "is not a list of numbers"),
        ("1,2,1", "99999999999*1", "the lists have more than 2000000 entries"),
        ("1,2,1", "4;4;1,2,1", "line 5: rate '4;4' is not a list of numbers: '4;4' is not a whole"),
        ("1,2,1", ";1,2,1", "line 5: rate '' is not a list of numbers"),
        ("0.25", "1e999999", "time '1e999999' is not a list of numbers"),
        ("0.25", "-1", "time '-1' is not a list of numbers"),
        ("0.25", "1/0", "time '1/0' is not a list of numbers"),
        ('initialTokens="3"', 'initialTokens="x"', "channel 'c' starts with 'x' tokens"),
        ('srcActor="A"', 'srcActor="Z"', "line 7: channel 'c' names 'Z', which is not an actor"),
        ('srcPort="p"', 'srcPort="q"', "actor 'A' has no port 'q'"),
        ('srcPort="p"', "", "element 'channel' has no attribute 'srcPort'"),
        ('type="out"', 'type="in"', "line 5: port 'p' of 'A' should have type 'out'"),
        ('<actor name="B"', '<actor name="A"', "line 6: two actors are called 'A'"),
        ('actorProperties actor="B"', 'actorProperties actor="C"', "'B' has no execution time"),
        ('actorProperties actor="B"', 'actorProperties actor="A"', "line 14: the properties of a"),
        ('<executionTime time="0.25"/>', "", "line 14: actor 'B' has no execution time"),
        ('<executionTime time="0.25"/>', '<executionTime time="1"/>' * 2, "two execution times"),
        ('<processor type="arm"><executionTime time="0.25"/></processor>', "", "it has no proc"),
        ('sz="12"', 'sz="big"', "line 16: the token size 'big' is not a number of bits"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(old: str, new: str, sentence: str) -> None:
    assert old in SMALL
    with pytest.raises(sdf3.Sdf3Error) as caught:
        parse(SMALL.replace(old, new))
    assert str(caught.value).startswith("small.xml: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


class TestXmlThatNobodyVouchesFor:
    def refused(self, text: str, sentence: str) -> None:
        with pytest.raises(sdf3.Sdf3Error, match=sentence):
            parse(text)

    def test_an_entity_bomb(self) -> None:
        lines = ['<!ENTITY a0 "ha">']
        lines += [f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 30)]
        self.refused(
            f"<!DOCTYPE sdf3 [{''.join(lines)}]><sdf3>&a29;</sdf3>", "declares the entity 'a0'"
        )

    def test_an_external_entity(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("secret")
        self.refused(
            f'<!DOCTYPE sdf3 [<!ENTITY x SYSTEM "{secret.as_uri()}">]><sdf3>&x;</sdf3>',
            "declares the entity 'x'",
        )

    def test_an_external_definition_is_not_fetched(self) -> None:
        text = SMALL.replace(
            "<sdf3 ", '<!DOCTYPE sdf3 SYSTEM "http://localhost:1/none.dtd">\n<sdf3 '
        )
        assert parse(text) == parse(SMALL)
        self.refused(text.replace("<applicationGraph", "&who;<applicationGraph"), "entity 'who'")

    def test_deep_nesting(self) -> None:
        self.refused("<sdf3>" * 100_000, "nested deeper than 64")

    def test_many_elements(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("csdf.formats.safe_xml.MAX_ELEMENTS", 5)
        self.refused(SMALL, "more than 5 elements")

    def test_large_files(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr("csdf.formats.safe_xml.MAX_BYTES", 100)
        large = tmp_path / "large.xml"
        large.write_text(SMALL)
        with pytest.raises(sdf3.Sdf3Error, match="is larger than"):
            sdf3.read(large)

    @pytest.mark.parametrize("data", [b"", b"\0\1\2", b"\xff\xfe<", b"not xml", b"<a><b></a>"])
    def test_what_is_not_xml(self, data: bytes) -> None:
        with pytest.raises(sdf3.Sdf3Error, match="is not"):
            sdf3.parse(data)

    def test_an_unknown_encoding(self) -> None:
        with pytest.raises(sdf3.Sdf3Error, match="encoding"):
            sdf3.parse(b"<?xml version='1.0' encoding='martian'?><a/>")


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(sdf3.Sdf3Error, match=r"none.xml: cannot be read: No such file"):
        sdf3.read(tmp_path / "none.xml")
    with pytest.raises(sdf3.Sdf3Error, match="cannot be read: Is a directory"):
        sdf3.read(tmp_path)
