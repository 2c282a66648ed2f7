"""The times a query speaks of."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.recall.when import EARLIEST, LATEST, Span, instant, spans
from memory_svc.errors import Invalid

TOKYO, ANGELES = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/Los_Angeles")
ZONES = [TOKYO, ANGELES, dt.UTC, ZoneInfo("Asia/Kathmandu"), ZoneInfo("Pacific/Apia"), ZoneInfo("America/Havana")]
NOW = dt.datetime(2026, 3, 11, 15, 30, tzinfo=TOKYO)  # a Wednesday


def days(query: str, now: dt.datetime = NOW, zone: dt.tzinfo = TOKYO) -> list[str]:
    """The spans of a query as "first day..day after the last", or the first day alone; an open side is left empty."""
    return [_shown(span, zone) for span in spans(query, now, zone)]


def _shown(span: Span, zone: dt.tzinfo) -> str:
    first = "" if span.start == EARLIEST else _day(span.start, zone)
    after = "" if span.end == LATEST else _day(span.end, zone)
    is_one = first and after and span.end - span.start <= dt.timedelta(hours=25)
    return first if is_one else f"{first}..{after}"


def _day(moment: dt.datetime, zone: dt.tzinfo) -> str:
    local = moment.astimezone(zone)
    assert local.time() == dt.time(), f"{local} is not the beginning of a day"
    return local.date().isoformat()


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("what did we do today", ["2026-03-11"]),
        ("this morning, tonight", ["2026-03-11"]),
        ("Yesterday's notes", ["2026-03-10"]),
        ("yesterday’s notes and last night", ["2026-03-10"]),
        ("the day before yesterday", ["2026-03-09"]),
        ("tomorrow or the day after tomorrow", ["2026-03-12", "2026-03-13"]),
        ("this week", ["2026-03-09..2026-03-16"]),
        ("last   week", ["2026-03-02..2026-03-09"]),
        ("next week", ["2026-03-16..2026-03-23"]),
        ("the week before last", ["2026-02-23..2026-03-02"]),
        ("last month", ["2026-02-01..2026-03-01"]),
        ("this quarter", ["2026-01-01..2026-04-01"]),
        ("previous quarter", ["2025-10-01..2026-01-01"]),
        ("next year", ["2027-01-01..2028-01-01"]),
        ("this weekend", ["2026-03-14..2026-03-16"]),
        ("last weekend", ["2026-03-07..2026-03-09"]),
        ("over the weekend", ["2026-03-07..2026-03-09"]),
        ("last Tuesday", ["2026-03-10"]),
        ("last Wednesday", ["2026-03-04"]),
        ("this Wednesday", ["2026-03-11"]),
        ("next Wednesday", ["2026-03-18"]),
        ("next Thursday", ["2026-03-12"]),
        ("this past fri", ["2026-03-06"]),
        ("on Wednesday we met", ["2026-03-11"]),
        ("on Thursday", ["2026-03-05"]),
        ("Tuesday of last week", ["2026-03-03"]),
        ("last week's Friday", ["2026-03-06"]),
        ("next week on Monday", ["2026-03-16"]),
    ],
)
def test_words_for_days_weeks_and_months_are_read(query: str, read: list[str]) -> None:
    assert days(query) == read


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("3 days ago", ["2026-03-08"]),
        ("３ days ago", ["2026-03-08"]),
        ("a week ago", ["2026-03-02..2026-03-09"]),
        ("two weeks ago", ["2026-02-23..2026-03-02"]),
        ("a couple of months ago", ["2026-01-01..2026-02-01"]),
        ("couple days ago", ["2026-03-09"]),
        ("twenty-three days ago", ["2026-02-16"]),
        ("twelve years ago", ["2014-01-01..2015-01-01"]),
        ("in the last 3 days", ["2026-03-08..2026-03-12"]),
        ("past week", ["2026-03-04..2026-03-12"]),
        ("last two months", ["2026-01-11..2026-03-12"]),
        ("within the past year", ["2025-03-11..2026-03-12"]),
        ("next 3 days", ["2026-03-11..2026-03-15"]),
        ("a few days ago", []),
        ("half a year ago", []),
        ("two and a half years ago", []),
        ("1.5 years ago", []),
        ("more than 3 weeks ago", []),
        ("over a year ago", []),
        ("a year and two months ago", []),
        ("a hundred and two days ago", []),
        ("3,000 days ago", []),
        ("99999999 years ago", []),
        ("9999 years ago", []),
        ("in the last 9999 years", []),
        ("5 minutes ago", []),
        ("last day of the sprint", []),
        ("the last 3 days of the sprint", []),
    ],
)
def test_amounts_of_time_are_read_where_they_say_one_thing(query: str, read: list[str]) -> None:
    assert days(query) == read


@pytest.mark.parametrize(
    ("query", "start", "minutes"),
    [
        ("an hour ago", "2026-03-11T14:00+09:00", 60),
        ("2 hours ago", "2026-03-11T13:00+09:00", 60),
        ("3時間前", "2026-03-11T12:00+09:00", 60),
        ("the last 2 hours", "2026-03-11T13:30+09:00", 120),
        ("the last hour", "2026-03-11T14:30+09:00", 60),
        ("past 30 minutes", "2026-03-11T15:00+09:00", 30),
        ("next 2 hours", "2026-03-11T15:30+09:00", 120),
        ("直近30分", "2026-03-11T15:00+09:00", 30),
        ("at 2023-05-08T10:00Z", "2023-05-08T10:00+00:00", 1),
        ("at 2023-05-08 10:30", "2023-05-08T10:30+09:00", 1),
        ("at 2023-05-08t10:30:05.25-07:00", "2023-05-08T10:30:05-07:00", 1 / 60),
    ],
)
def test_hours_and_instants_are_read(query: str, start: str, minutes: float) -> None:
    (span,) = spans(query, NOW, TOKYO)
    assert span.start == dt.datetime.fromisoformat(start)
    assert span.end - span.start == dt.timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("in March", ["2026-03-01..2026-04-01"]),
        ("in may we decided", ["2025-05-01..2025-06-01"]),
        ("in May?", ["2025-05-01..2025-06-01"]),
        ("early December", ["2025-12-01..2026-01-01"]),
        ("at the end of March", ["2026-03-01..2026-04-01"]),
        ("last March", ["2025-03-01..2025-04-01"]),
        ("last February", ["2026-02-01..2026-03-01"]),
        ("this March", ["2026-03-01..2026-04-01"]),
        ("next March", ["2027-03-01..2027-04-01"]),
        ("March 2023", ["2023-03-01..2023-04-01"]),
        ("Sept. of 2022", ["2022-09-01..2022-10-01"]),
        ("May last year", ["2025-05-01..2025-06-01"]),
        ("8 May 2023", ["2023-05-08"]),
        ("the 8th of May, 2023", ["2023-05-08"]),
        ("May 8, 2023", ["2023-05-08"]),
        ("Sept. 5,2022", ["2022-09-05"]),
        ("May 8th", ["2025-05-08"]),
        ("Mar 11", ["2026-03-11"]),
        ("Mar 12", ["2025-03-12"]),
        ("May 5-8, 2023", ["2023-05-05..2023-05-09"]),
        ("5 to 8 May 2023", ["2023-05-05..2023-05-09"]),
        ("May 8-5, 2023", []),
        ("29 Feb", ["2024-02-29"]),
        ("Feb 27-30, 2024", []),
        ("31 February", []),
        ("February 31, 2023", []),
        ("in Q2", ["2025-04-01..2025-07-01"]),
        ("Q2 2023", ["2023-04-01..2023-07-01"]),
        ("2023Q2 and 2023-Q3", ["2023-04-01..2023-07-01", "2023-07-01..2023-10-01"]),
        ("q3 last year", ["2025-07-01..2025-10-01"]),
        ("in 2022", ["2022-01-01..2023-01-01"]),
        ("in 2022 we moved", ["2022-01-01..2023-01-01"]),
        ("in 2022 tokens", []),
        ("in 2048", []),
        ("error 2003 we saw", []),
    ],
)
def test_months_and_years_are_read_with_a_word_that_makes_them_a_time(query: str, read: list[str]) -> None:
    assert days(query) == read


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("2023-05-08", ["2023-05-08"]),
        ("2023/05/08", ["2023-05-08"]),
        ("2023/5/8", ["2023-05-08"]),
        ("２０２３-05-08に決めたこと", ["2023-05-08"]),
        ("日付：2023-05-08", ["2023-05-08"]),
        ("2023-05", ["2023-05-01..2023-06-01"]),
        ("8/5/2023", ["2023-08-05", "2023-05-08"]),
        ("13/5/2023", ["2023-05-13"]),
        ("5/13/2023", ["2023-05-13"]),
        ("5/5/2023", ["2023-05-05"]),
        ("32/13/2023", []),
        ("8/5", []),
        ("8.5.2023", []),
        ("2023-13-01", []),
        ("2023-02-30", []),
        ("2023-05-08T25:00", []),
        ("log-2023-05-08.txt", []),
        ("v2023.05.08", []),
        ("CVE-2023-05", []),
        ("1066-10-14", []),
    ],
)
def test_dates_in_digits_are_read_and_an_order_that_nobody_can_tell_is_read_both_ways(
    query: str, read: list[str]
) -> None:
    assert days(query) == read


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("since March", ["2026-03-01.."]),
        ("since 3 days ago", ["2026-03-08.."]),
        ("from Monday onwards", ["2026-03-09.."]),
        ("before 2023-05-01", ["..2023-05-01"]),
        ("prior to last week", ["..2026-03-02"]),
        ("until 2023-05-01", ["..2023-05-02"]),
        ("by July 10, 2022", ["..2022-07-11"]),
        ("after May 2023", ["2023-06-01.."]),
        ("since 8/5/2023", ["2023-08-05..", "2023-05-08.."]),
        ("between 2023-05-01 and 2023-05-08", ["2023-05-01..2023-05-09"]),
        ("between 8 May 2023 and 1 May 2023", ["2023-05-01..2023-05-09"]),
        ("from May 5 to May 8, 2023", ["2023-05-05..2023-05-09"]),
        ("May 8 to 10 June", ["2025-05-08..2025-06-11"]),
        ("from May 8 to 1 Feb", ["2025-05-08..2026-02-02"]),
        ("from 31 Dec 2025 to 2026-01-02", ["2025-12-31..2026-01-03"]),
        ("from November to February", ["2025-11-01..2026-03-01"]),
        ("between March and May", ["2026-03-01..2026-06-01"]),
        ("between 2020 and 2022", ["2020-01-01..2023-01-01"]),
        ("2023-05-01 - 2023-05-08", ["2023-05-01..2023-05-09"]),
        ("from 8/5/2023 to 9/5/2023", ["2023-08-05..2023-09-06", "2023-05-08..2023-05-10"]),
        ("from 8/5/2023 until yesterday", ["2023-08-05..2026-03-11", "2023-05-08..2026-03-11"]),
        ("yesterday and today", ["2026-03-10", "2026-03-11"]),
        ("march to may", []),
        ("3 days before 2023-05-01", []),
        ("the week after May 8, 2023", []),
        ("the Sunday before October 25, 2022", ["..2022-10-25"]),
        ("last Friday on 23 January, 2022", ["2022-01-23"]),
        ("written by May", []),
        ("from 32/13/2023 to 8 May 2023", ["2023-05-08"]),
    ],
)
def test_what_stands_beside_a_time_changes_it(query: str, read: list[str]) -> None:
    assert days(query) == read


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("今日何をした", ["2026-03-11"]),
        ("昨日の会議", ["2026-03-10"]),
        ("一昨日とおととい", ["2026-03-09"]),
        ("明日の予定", ["2026-03-12"]),
        ("今週", ["2026-03-09..2026-03-16"]),
        ("先週と先々週", ["2026-03-02..2026-03-09", "2026-02-23..2026-03-02"]),
        ("来週", ["2026-03-16..2026-03-23"]),
        ("先週末", ["2026-03-07..2026-03-09"]),
        ("今月は先月より", ["2026-03-01..2026-04-01", "2026-02-01..2026-03-01"]),
        ("去年、昨年", ["2025-01-01..2026-01-01"]),
        ("一昨年", ["2024-01-01..2025-01-01"]),
        ("先週の火曜日", ["2026-03-03"]),
        ("月曜の会議", ["2026-03-09"]),
        ("3日前", ["2026-03-08"]),
        ("３日前", ["2026-03-08"]),
        ("十二日前", ["2026-02-27"]),
        ("二十三日ほど前", ["2026-02-16"]),
        ("２週間前", ["2026-02-23..2026-03-02"]),
        ("2ヶ月前", ["2026-01-01..2026-02-01"]),
        ("2か月前", ["2026-01-01..2026-02-01"]),
        ("二個月前", ["2026-01-01..2026-02-01"]),
        ("1年前", ["2025-01-01..2026-01-01"]),
        ("過去3日間", ["2026-03-08..2026-03-12"]),
        ("この1週間", ["2026-03-04..2026-03-12"]),
        ("2023年5月8日", ["2023-05-08"]),
        ("2023 年 5 月 8 日", ["2023-05-08"]),
        ("二〇二三年五月八日", ["2023-05-08"]),
        ("2023年5月", ["2023-05-01..2023-06-01"]),
        ("2023年", ["2023-01-01..2024-01-01"]),
        ("５月８日午前10時", ["2025-05-08"]),
        ("5月", ["2025-05-01..2025-06-01"]),
        ("去年の5月", ["2025-05-01..2025-06-01"]),
        ("先月の5日", ["2026-02-05"]),
        ("令和5年", ["2023-01-01..2024-01-01"]),
        ("令和元年5月1日", ["2019-05-01"]),
        ("平成三十一年4月", ["2019-04-01..2019-05-01"]),
        ("昭和64年1月7日", ["1989-01-07"]),
        ("5月8日から5月10日まで", ["2025-05-08..2025-05-11"]),
        ("2023年5月〜7月", ["2023-05-01..2023-08-01"]),
        ("2023年4月と2023年6月の間", ["2023-04-01..2023-07-01"]),
        ("先週以降", ["2026-03-02.."]),
        ("昨日から", ["2026-03-10.."]),
        ("2023年以前", ["..2024-01-01"]),
        ("昨日まで", ["..2026-03-11"]),
        ("5月8日より前に", ["..2025-05-08"]),
        ("5月8日の後で", ["2025-05-09.."]),
    ],
)
def test_japanese_times_are_read(query: str, read: list[str]) -> None:
    assert days(query) == read


@pytest.mark.parametrize(
    "query",
    [
        "May I restart the server while the backfill runs",
        "it may have been the cache",
        "this may break, and the last may fail",
        "what came before may be related",
        "the march of progress",
        "give me a second to look",
        "the second retry failed with exit code 1",
        "she sat on the bench and read the spec",
        "sun workstation keyboard layout",
        "mon cher, the French greeting",
        "port 8080 is taken",
        "we use version 3.12 of python",
        "the day the index broke",
        "the Monday meeting, every Monday",
        "GET /today from today.py",
        "last_week and this_year",
        "x" * 2000 + " today",
        "説明日を決める",
        "将来年金をもらう",
        "日本語の文章",
        "毎週月曜日と毎年5月",
        "23年5月8日",
        "2023年度",
        "平成40年",
        "平成〇年",
        "数日前と半年前と2年半前",
        "5分前",
        "10年前半",
        "5月8日間",
        "五月晴れ",
        "日曜大工",
        "第二日目",
        "十十日前",
        "",
    ],
)
def test_what_may_mean_something_else_is_no_time(query: str) -> None:
    assert days(query) == []


def test_a_span_says_what_of_the_query_said_so() -> None:
    assert [span.text for span in spans("What, since　Last  Week and in March?", NOW, TOKYO)] == [
        "since last week",
        "march",
    ]


def test_each_span_is_told_once_and_no_more_than_eight() -> None:
    assert len(spans("today, Today and 今日", NOW, TOKYO)) == 1
    assert len(spans(" ".join(f"2023-05-{day:02}," for day in range(1, 31)), NOW, TOKYO)) == 8


def test_a_day_begins_at_midnight_in_the_zone_of_the_caller() -> None:
    now = dt.datetime(2026, 3, 10, 23, 30, tzinfo=dt.UTC)
    assert days("today", now, dt.UTC) == ["2026-03-10"]
    assert days("today", now, TOKYO) == ["2026-03-11"]
    assert days("today", now, ANGELES) == ["2026-03-10"]
    assert spans("today", now, TOKYO)[0].start == dt.datetime(2026, 3, 10, 15, tzinfo=dt.UTC)


@pytest.mark.parametrize(("day", "hours"), [("2026-03-08", 23), ("2026-11-01", 25), ("2026-06-01", 24)])
def test_a_day_on_which_clocks_change_is_as_long_as_it_is(day: str, hours: int) -> None:
    now = dt.datetime.fromisoformat(f"{day}T20:00:00+00:00")
    for query in (day, "today"):
        (span,) = spans(query, now, ANGELES)
        assert span.end - span.start == dt.timedelta(hours=hours)


def test_an_hour_that_comes_twice_is_told_apart() -> None:
    second = dt.datetime(2026, 11, 1, 10, 30, tzinfo=dt.UTC)  # 02:30, an hour after 01:30 for the second time
    assert [spans(f"{hours} hours ago", second, ANGELES)[0].start.hour for hours in (1, 2)] == [9, 8]


def test_a_day_that_a_zone_left_out_is_no_span() -> None:
    assert spans("2011-12-30", NOW, ZoneInfo("Pacific/Apia")) == []


@pytest.mark.parametrize("now", [dt.datetime(1, 1, 3, tzinfo=dt.UTC), dt.datetime(9999, 12, 30, tzinfo=dt.UTC)])
@pytest.mark.parametrize("query", ["last year", "next year", "3 days ago", "next March", "from May 8 to 29 Feb", "5月"])
def test_the_ends_of_the_calendar_raise_nothing(query: str, now: dt.datetime) -> None:
    assert all(EARLIEST <= span.start < span.end <= LATEST for span in spans(query, now, dt.UTC))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2026-03-01T00:00:00Z", "2026-03-01T00:00:00+00:00"),
        ("2026-03-01T00:00:00+09:00", "2026-02-28T15:00:00+00:00"),
        (" 2026-03-01T08:30 ", "2026-02-28T23:30:00+00:00"),
        ("2026-03-01", "2026-02-28T15:00:00+00:00"),
    ],
)
def test_an_instant_of_a_caller_is_read_in_the_zone_where_it_names_none(text: str, read: str) -> None:
    assert instant(text, TOKYO).isoformat() == read


@pytest.mark.parametrize("text", ["", "yesterday", "2026-02-30", "0001-01-01", "9999-12-31T23:59-12:00"])
def test_what_is_no_instant_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Invalid, match="2026-03-01T09:30:00"):
        instant(text, TOKYO)


WORDS = (
    "today yesterday last this next past week month year weekend tuesday fri may march 8 8th 31 2023 2023-05-08 29 feb"
    " q2 8/5/2023 ago a couple of few days hours in since before until between and from to the - , . on by 3 日 前 年"
    " 今日 先週 の 火曜日 5月 8日 令和 元 から まで と の間 ヶ月 十 三 〜 2023年 以降 T10:00Z ９ 000 99999999"
)
PIECES = st.sampled_from(WORDS.split())
QUERIES = st.one_of(
    st.text(max_size=200),
    st.lists(PIECES, max_size=14).map(" ".join),
    st.lists(PIECES, max_size=14).map("".join),
)
MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))


@given(QUERIES, MOMENTS, st.sampled_from(ZONES))
def test_no_text_raises_and_every_span_is_a_stretch_of_utc(query: str, now: dt.datetime, zone: dt.tzinfo) -> None:
    found = spans(query, now, zone)
    assert found == spans(query, now, zone)
    assert len(found) <= 8
    for span in found:
        assert span.start.tzinfo is dt.UTC
        assert span.end.tzinfo is dt.UTC
        assert EARLIEST <= span.start < span.end <= LATEST
        assert span.text
        assert span.start.astimezone(zone) < span.end.astimezone(zone)


@given(MOMENTS, st.sampled_from(ZONES), st.integers(0, 40))
def test_each_instant_lies_in_its_own_today_and_weeks_follow_each_other(
    now: dt.datetime, zone: dt.tzinfo, count: int
) -> None:
    (today,) = spans("today", now, zone)
    assert today.start <= now < today.end
    (week,) = spans("this week", now, zone)
    assert week.start.astimezone(zone).weekday() == 0 or week.start.astimezone(zone).hour > 0
    assert spans("last week", now, zone)[0].end == week.start
    assert spans(f"{count + 1} days ago", now, zone)[0].end == spans(f"{count} days ago", now, zone)[0].start


@given(MOMENTS, st.sampled_from(ZONES), st.sampled_from(["monday", "thursday", "sunday"]))
def test_a_last_weekday_is_over_and_a_next_one_is_to_come(now: dt.datetime, zone: dt.tzinfo, name: str) -> None:
    (today,) = spans("today", now, zone)
    assert spans(f"last {name}", now, zone)[0].end <= today.start
    assert spans(f"next {name}", now, zone)[0].start >= today.end
