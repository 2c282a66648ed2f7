"""Times in English words, in lower case and with single blanks."""

import re

from memory_svc.domain.recall.when.calendar import Calendar, Found
from memory_svc.domain.recall.when.forms import YEAR, Form, any_of, word

NAMED = {
    "today": ("day", 0), "tonight": ("day", 0), "this morning": ("day", 0), "this afternoon": ("day", 0),
    "this evening": ("day", 0), "yesterday": ("day", -1), "last night": ("day", -1), "tomorrow": ("day", 1),
    "day before yesterday": ("day", -2), "day after tomorrow": ("day", 2), "week before last": ("week", -2),
    "weekend before last": ("weekend", -2), "month before last": ("month", -2), "year before last": ("year", -2),
}  # fmt: skip
OFFSETS = {"last": -1, "previous": -1, "this": 0, "current": 0, "next": 1}
WHICH = {"last": "last", "past": "last", "this past": "last", "previous": "last", "this": "this", "next": "next"}
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# The short forms of the others are words of their own.
WEEKDAYS = {name: number for number, name in enumerate(DAYS)} | dict.fromkeys(("tue", "tues"), 1)
WEEKDAYS |= dict.fromkeys(("thu", "thur", "thurs"), 3) | {"fri": 4}
MONTHS = {
    "january": 1, "february": 2, "march": 3, "april": 4, "may": 5, "june": 6, "july": 7, "august": 8, "september": 9,
    "october": 10, "november": 11, "december": 12,
}  # fmt: skip
SHORT = {name[:3]: number for name, number in MONTHS.items()} | {"sept": 9} | MONTHS
SMALL = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17,
    "eighteen": 18, "nineteen": 19,
}  # fmt: skip
TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90
}  # fmt: skip
COUNTS = SMALL | TENS | {"a": 1, "an": 1, "couple": 2, "of": 0}

COUNT = (
    rf"([0-9]{{1,4}}|(?:a )?couple(?: of)?|an?|(?:{'|'.join(TENS)})(?:[ -](?:{'|'.join([*SMALL][:9])}))?"
    rf"|{'|'.join(reversed(SMALL))})"
)
MORE = (
    "((?:more|less|longer) than|over|under|half|(?:hundred|thousand)(?: and)?|at least"
    "|(?:year|month|week|day|hour)s? and)"
)
UNIT = r"(day|week|month|quarter|year|hour|minute)s?"
AGO_UNIT = r"(day|week|month|quarter|year|hour)s?"
WEEKDAY, SHORT_MONTH = any_of(WEEKDAYS), any_of(SHORT)
NTH = "([0-9]{1,2})(?:st|nd|rd|th)?"
DAY, TO_DAY = f"(?:the )?{NTH}", f" ?(?:-|–|to|through) ?{NTH}"
NO_MONTH = f"(?! (?:of )?(?:{'|'.join(SHORT)}))"
SOME_YEAR = rf"({YEAR}|(?:last|this|next) year)"
WEEK = r"(last|previous|this|next) week"
# A year may be a number of things, and "may" a verb: what follows must not be what is counted or done.
FOLLOWED = (
    r"(?=[^\w ]|[^\x00-\x7f]|$| (?:[^\w ]|i|we|you|he|she|they|it|my|our|his|her|the|a|an|this|that|who|what|when|where"
    r"|which|why|how|did|do|does|was|were|is|are|and|or|but|to|until|till|through|with|for|from|about|at|on|in|by|as"
    r"|then|because)\b)"
)
MONTH = any_of([*(name for name in MONTHS if name != "may"), rf"(?<!this )may{FOLLOWED}"])


def count(text: str) -> int:
    """The number that digits or words tell."""
    if text.isdigit():
        return int(text)
    parts = re.split("[ -]", text.removeprefix("a "))
    return sum(COUNTS[part] for part in parts)


def year(text: str | None, calendar: Calendar) -> int | None:
    """The year of "2023" or "last year", where there is one."""
    if text is None or text.isdigit():
        return int(text) if text else None
    return calendar.today.year + OFFSETS[text.split()[0]]


def _named(match: re.Match[str], calendar: Calendar) -> Found:
    return Found((calendar.unit(*NAMED[match[1]]),))


def _unit(match: re.Match[str], calendar: Calendar) -> Found:
    return Found((calendar.unit(match[2], OFFSETS[match[1]]),))


def _weekend(_: re.Match[str], calendar: Calendar) -> Found:
    this = calendar.unit("weekend")
    return Found((this if this.start <= calendar.now else calendar.unit("weekend", -1),))


def _past(match: re.Match[str], calendar: Calendar) -> Found:
    return Found((calendar.lately(match[1], 1),))


def _lately(match: re.Match[str], calendar: Calendar) -> Found:
    many = count(match[2])
    return Found((calendar.lately(match[3], -many if match[1] in {"next", "coming"} else many),))


def _ago(match: re.Match[str], calendar: Calendar) -> Found:
    if match[1]:
        raise ValueError("more than it says")
    return Found((calendar.unit(match[3], -count(match[2])),))


def _weekday(match: re.Match[str], calendar: Calendar) -> Found:
    which = WHICH.get(match[1], "")
    return Found((calendar.weekday(WEEKDAYS[match[2]], which),), is_weak=not which)


def _day_of_week(match: re.Match[str], calendar: Calendar) -> Found:
    day, week = (match[1], match[2]) if match[1] else (match[4], match[3])
    return Found((calendar.day_of_week(WEEKDAYS[day], OFFSETS[week]),))


def _month(match: re.Match[str], calendar: Calendar) -> Found:
    month, which = MONTHS[match[2]], WHICH.get(match[1])
    if which:
        return Found((calendar.latest(lambda year: calendar.months(year, month), which),))
    return calendar.dated(lambda year: calendar.months(year, month), None, is_weak=True)


def _month_of_year(match: re.Match[str], calendar: Calendar) -> Found:
    month = SHORT[match[1]]
    return calendar.dated(lambda year: calendar.months(year, month), year(match[2], calendar))


def _month_day(match: re.Match[str], calendar: Calendar) -> Found:
    return calendar.month_day(year(match[4], calendar), SHORT[match[1]], int(match[2]), int(match[3] or 0))


def _day_month(match: re.Match[str], calendar: Calendar) -> Found:
    return calendar.month_day(year(match[4], calendar), SHORT[match[3]], int(match[1]), int(match[2] or 0))


def _quarter(match: re.Match[str], calendar: Calendar) -> Found:
    month = 3 * int(match[2]) - 2
    of = year(match[1] or match[3], calendar)
    return calendar.dated(lambda each: calendar.months(each, month, 3), of, is_weak=True)


def _year(match: re.Match[str], calendar: Calendar) -> Found:
    if int(match[1]) > calendar.today.year + 1:
        raise ValueError("more likely a number than a year")
    return Found((calendar.months(int(match[1]), 1, 12),), is_weak=True)


# Of two that begin at the same place the longer is taken, then the earlier in this list.
FORMS = (
    Form(word(any_of(NAMED)), _named),
    Form(word(r"(last|previous|this|current|next) (weekend|week|month|quarter|year)(?! of\b)"), _unit),
    Form(word(r"(?:over|on|during|at) the weekend"), _weekend),
    Form(word(rf"(last|past|previous|next|coming) {COUNT} {UNIT}(?! of\b)"), _lately),
    Form(word(r"(?:last (?=hour)|past )(day|week|month|quarter|year|hour)(?! of\b)"), _past),
    Form(word(rf"(?:{MORE} )?{COUNT} {AGO_UNIT} ago"), _ago),
    Form(word(rf"(?:(this past|last|past|previous|this|next) )?{WEEKDAY}(?! of\b)"), _weekday),
    Form(word(rf"{WEEKDAY}(?: of|,)? {WEEK}|{WEEK}(?:'s| on|,)? {WEEKDAY}"), _day_of_week),
    Form(word(rf"(?:(this past|last|past|previous|this|next) )?{MONTH}"), _month),
    Form(word(rf"{SHORT_MONTH}\.?,?(?: of)? {SOME_YEAR}"), _month_of_year),
    Form(word(rf"{SHORT_MONTH}\.? {DAY}(?:{TO_DAY}{NO_MONTH})?(?:,? ?(?:of )?{SOME_YEAR})?"), _month_day),
    Form(word(rf"{DAY}() (?:of )?{SHORT_MONTH}\.?(?:,? ?(?:of )?{SOME_YEAR})?"), _day_month),
    Form(word(rf"{DAY}{TO_DAY} (?:of )?{SHORT_MONTH}\.?(?:,? ?(?:of )?{SOME_YEAR})?"), _day_month),
    Form(word(rf"(?:{SOME_YEAR}[ -]?)?q([1-4])(?:,? (?:of )?{SOME_YEAR})?"), _quarter),
    Form(word(rf"({YEAR}){FOLLOWED}"), _year),
)
