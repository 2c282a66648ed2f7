"""Times in Japanese words, with numerals in digits or in Chinese characters, and years of the eras since 1926."""

import re

from memory_svc.domain.recall.when.calendar import Calendar, Found, begun, moved
from memory_svc.domain.recall.when.forms import YEAR, Form, any_of

NAMED = {
    "今日": ("day", 0), "本日": ("day", 0), "今朝": ("day", 0), "今夜": ("day", 0), "今晩": ("day", 0),
    "昨日": ("day", -1), "昨夜": ("day", -1), "昨晩": ("day", -1), "一昨日": ("day", -2), "おととい": ("day", -2),
    "明日": ("day", 1), "明後日": ("day", 2), "あさって": ("day", 2),
    "今週末": ("weekend", 0), "先週末": ("weekend", -1), "来週末": ("weekend", 1),
}  # fmt: skip
WEEKS = {"先々週": -2, "先週": -1, "今週": 0, "来週": 1, "再来週": 2}
MONTHS = {"先々月": -2, "先月": -1, "今月": 0, "来月": 1, "再来月": 2}
YEARS = {"一昨年": -2, "おととし": -2, "昨年": -1, "去年": -1, "今年": 0, "本年": 0, "来年": 1, "再来年": 2}
NAMED |= {name: ("week", offset) for name, offset in WEEKS.items()}
NAMED |= {name: ("month", offset) for name, offset in MONTHS.items()}
NAMED |= {name: ("year", offset) for name, offset in YEARS.items()}
DAYS = "月火水木金土日"
UNITS = {"日": "day", "週": "week", "月": "month", "年": "year", "時": "hour", "分": "minute"}
ERAS = {"令和": (2018, 99), "平成": (1988, 31), "昭和": (1925, 64)}
DIGITS = str.maketrans("〇一二三四五六七八九", "0123456789")

# What goes on from another word (説明日, 従来年) or number (百三日前) is no time.
ALONE = r"(?<![一-鿿々〇])"
NUMERAL = r"([0-9]{1,4}|[〇一二三四五六七八九十]{1,4})"
NUMBER = rf"(?<![0-9.,〇一二三四五六七八九十百千万第]){NUMERAL}"
UNIT = "(?:([日年])|(週)間?|[ヶケかカヵ個箇](月)|(時)間|(分))"
WEEK, MONTH_WORD, YEAR_WORD = any_of(WEEKS), any_of(MONTHS), any_of(YEARS)
YEAR_NUMBER = (
    rf"(?:(?<![0-9.〇一二三四五六七八九])({YEAR}|[〇一二三四五六七八九]{{4}})|({'|'.join(ERAS)})(元|{NUMERAL[1:-1]}))年"
)
MONTH = rf"{NUMERAL}月(?:の?{NUMERAL}日|(?!の?[0-9〇一二三四五六七八九十]))"


def number(text: str) -> int:
    """The number that digits or Chinese numerals below a hundred tell."""
    digits = text.translate(DIGITS)
    tens = re.fullmatch("([0-9]?)十([0-9]?)", digits)
    return int(tens[1] or 1) * 10 + int(tens[2] or 0) if tens else int(digits)


def _named(match: re.Match[str], calendar: Calendar) -> Found:
    return Found((calendar.unit(*NAMED[match[1]]),))


def _amount(match: re.Match[str]) -> tuple[str, int]:
    unit = next(filter(None, match.groups()[1:]))
    return UNITS[unit], number(match[1])


def _lately(match: re.Match[str], calendar: Calendar) -> Found:
    return Found((calendar.lately(*_amount(match)),))


def _ago(match: re.Match[str], calendar: Calendar) -> Found:
    unit, count = _amount(match)
    if unit == "minute":
        raise ValueError("nobody means the minute itself")
    return Found((calendar.unit(unit, -count),))


def _weekday(match: re.Match[str], calendar: Calendar) -> Found:
    return Found((calendar.weekday(DAYS.index(match[1])),))


def _day_of_week(match: re.Match[str], calendar: Calendar) -> Found:
    return Found((calendar.day_of_week(DAYS.index(match[2]), WEEKS[match[1]]),))


def _year(digits: str | None, era: str | None, of_era: str | None) -> int:
    """The year of 2023, 二〇二三 or 令和5. Raises ValueError where the era had no such year."""
    if era and of_era:
        before, last = ERAS[era]
        count = 1 if of_era == "元" else number(of_era)
        if not 1 <= count <= last:
            raise ValueError("no year of that era")
        return before + count
    return int((digits or "").translate(DIGITS))


def _date(match: re.Match[str], calendar: Calendar) -> Found:
    *named, word, month, day = match.groups()
    year = calendar.today.year + YEARS[word] if word else _year(*named)
    return _of_month(year, month, day, calendar)


def _month_day(match: re.Match[str], calendar: Calendar) -> Found:
    return _of_month(None, match[1], match[2], calendar)


def _of_month(year: int | None, month: str, day: str | None, calendar: Calendar) -> Found:
    if day:
        return calendar.month_day(year, number(month), number(day))
    return calendar.dated(lambda each: calendar.months(each, number(month)), year)


def _day_of_month(match: re.Match[str], calendar: Calendar) -> Found:
    first = moved(begun(calendar.today, "month"), "month", MONTHS[match[1]])
    return calendar.month_day(first.year, first.month, number(match[2]))


def _whole_year(match: re.Match[str], calendar: Calendar) -> Found:
    return Found((calendar.months(_year(*match.groups()), 1, 12),))


# Of two that begin at the same place the longer is taken, then the earlier in this list.
FORMS = tuple(
    Form(re.compile(pattern), read)
    for pattern, read in (
        (rf"{ALONE}{any_of(NAMED)}(?![度香子])", _named),
        (rf"(?:過去|直近|最近|ここ|この)の?{NUMERAL}{UNIT}間?(?![目生度])", _lately),
        (rf"{NUMBER}{UNIT}間?(?:ほど|くらい|ぐらい|程度?)?前(?![後半])", _ago),
        (rf"{ALONE}{WEEK}の?([{DAYS}])曜日?", _day_of_week),
        (rf"{ALONE}(?<!毎週の)([{DAYS}])曜日?(?!大)", _weekday),
        (rf"(?:{YEAR_NUMBER}|{ALONE}{YEAR_WORD})の?{MONTH}(?![間目])", _date),
        (rf"(?<![年毎])(?<!年[の)])(?<![0-9.,/〇一二三四五六七八九十第]){MONTH}(?![間目雨晴蠅病人])", _month_day),
        (rf"{ALONE}{MONTH_WORD}の?{NUMERAL}日(?![間目前])", _day_of_month),
        (rf"{YEAR_NUMBER}(?![度間代目]|前(?!半)|ぶり)", _whole_year),
    )
)
