//! The pieces of which a date may be written, and how the next one is found.
//!
//! All pieces are tried at once on the bytes ahead. The longest that fits is taken, and of equal ones the
//! first in the list. So the order counts: four digits are a time of day rather than a year.

use std::cell::RefCell;
use std::sync::LazyLock;

use kilim_error::{Error, Result};
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    Yesterday,
    Now,
    Noon,
    Midnight,
    Tomorrow,
    EpochSeconds,
    EpochMicros,
    EndOfMonth,
    QuarterPast,
    WeekdayOf,
    Clock12,
    Clock12Fraction,
    Clock24,
    ClockDigits,
    ClockDigitsSeconds,
    American,
    Iso,
    IsoTwoDigits,
    IsoLongYear,
    YearMonth,
    Dashed,
    DayMonthWord,
    Pointed,
    PointedTwoDigits,
    MonthWordYear,
    YearMonthWord,
    MonthWordDay,
    DayMonthWordAlone,
    Compact,
    DateTime,
    YearDay,
    WeekDate,
    Week,
    MonthWordDashed,
    YearMonthWordDashed,
    ServerLog,
    Year,
    Ago,
    Weekday,
    RelativeWeek,
    RelativeWord,
    MonthWord,
    Zone,
    MonthWordDayClock12,
    MonthWordDayClock24,
    Relative,
    Nothing,
}

fn pieces() -> Vec<(Piece, String)> {
    let space = r"[ \t]+";
    let fraction = r"\.[0-9]+";
    let hour24 = "(?:[01]?[0-9]|2[0-4])";
    let hour24lz = "(?:[01][0-9]|2[0-4])";
    let hour12 = "(?:0?[1-9]|1[0-2])";
    let minute = "[0-5]?[0-9]";
    let minutelz = "[0-5][0-9]";
    let second = "(?:[0-5]?[0-9]|60)";
    let secondlz = "(?:[0-5][0-9]|60)";
    let meridian = r"[AaPp]\.?[Mm]\.?[\x00\t ]";
    let zone_name = r"(?:\(?[A-Za-z]{1,6}\)?|[A-Z][a-z]+(?:[_/-][A-Za-z]+)+)";
    let zone_offset = format!(
        "(?:(?:GMT)?[+-](?:{hour24}(?::?{minute})?|{hour24lz}{minutelz}{secondlz}|\
         {hour24lz}:{minutelz}:{secondlz}))"
    );
    let month = "(?:0?[0-9]|1[0-2])";
    let monthlz = "(?:0[0-9]|1[0-2])";
    let day = "(?:(?:[0-2]?[0-9]|3[01])(?:st|nd|rd|th)?)";
    let daylz = "(?:0[0-9]|[1-2][0-9]|3[01])";
    let year = "[0-9]{1,4}";
    let year4 = "[0-9]{4}";
    let day_of_year = "(?:00[1-9]|0[1-9][0-9]|[1-2][0-9][0-9]|3[0-5][0-9]|36[0-6])";
    let week_of_year = "(?:0[1-9]|[1-4][0-9]|5[0-3])";
    let day_full = "(?:(?i:sunday|monday|tuesday|wednesday|thursday|friday|saturday))";
    let day_short = "(?:(?i:sun|mon|tue|wed|thu|fri|sat))";
    let day_name = format!("(?:{day_full}[sS]?|{day_short})");
    let day_word = format!("(?:{day_name}|(?i:weekdays?))");
    let month_full =
        "(?i:january|february|march|april|may|june|july|august|september|october|november|december)";
    let month_short = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sept?|oct|nov|dec)";
    let month_word = format!("(?:{month_full}|{month_short}|I|II|III|IV|V|VI|VII|VIII|IX|X|XI|XII)");
    let between = r"[ \t.-]*";

    let clock_short12 = format!("{hour12}[:.]{minutelz}(?:{space})?{meridian}");
    let clock_long12 = format!("{hour12}[:.]{minute}[:.]{secondlz}(?:{space})?{meridian}");
    let clock_short24 = format!("[tT]?{hour24}[:.]{minute}");
    let clock_long24 = format!("[tT]?{hour24}[:.]{minute}[:.]{second}");
    let clock_zone =
        format!("[tT]?{hour24}[:.]{minute}[:.]{secondlz}(?:{space})?(?:{zone_offset}|{zone_name})");
    let month_day = format!(r"{month_word}{between}{day}(?:[,.stndrh\t ]+|\x00)");

    let ordinal = "(?i:first|second|third|fourth|fifth|sixth|seventh|eighth?|ninth|tenth|eleventh|twelfth)";
    let direction = "(?i:next|last|previous|this)";
    let unit = format!(
        r"(?:(?i:ms|\xC2\xB5s)|(?i:msec|millisecond|\xC2\xB5sec|microsecond|usec|sec|second|min|minute|hour|day|fortnight|forthnight|month|year)[sS]?|(?i:weeks)|{day_word})"
    );

    use Piece::*;
    vec![
        (Yesterday, "(?i:yesterday)".to_owned()),
        (Now, "(?i:now)".to_owned()),
        (Noon, "(?i:noon)".to_owned()),
        (Midnight, "(?i:midnight|today)".to_owned()),
        (Tomorrow, "(?i:tomorrow)".to_owned()),
        (EpochSeconds, "@-?[0-9]+".to_owned()),
        (EpochMicros, r"@-?[0-9]+\.[0-9]{0,6}".to_owned()),
        (EndOfMonth, "(?i:first day of|last day of)".to_owned()),
        (QuarterPast, format!("(?i:back of |front of ){hour24}(?:(?:{space})?{meridian})?")),
        (WeekdayOf, format!("(?:{ordinal}|{direction}){space}{day_name}{space}(?i:of)")),
        (Clock12, format!("(?:{hour12}(?:{space})?{meridian}|{clock_short12}|{clock_long12})")),
        (Clock12Fraction, format!("{hour12}:{minutelz}:{secondlz}[:.][0-9]+{meridian}")),
        (Clock24, format!("(?:[tT]{hour24}|{clock_short24}|{clock_long24}(?:{fraction})?)")),
        (ClockDigits, format!("[tT]?{hour24lz}{minutelz}")),
        (ClockDigitsSeconds, format!("[tT]?{hour24lz}{minutelz}{secondlz}")),
        (American, format!("{month}/{day}(?:/{year})?")),
        (
            Iso,
            format!("(?:[+-]?{year4}-{monthlz}-{daylz}|{year4}/{monthlz}/{daylz}/?|{year4}/{month}/{day})"),
        ),
        (IsoTwoDigits, format!("[0-9]{{2}}-{monthlz}-{daylz}")),
        (IsoLongYear, format!("[+-][0-9]{{5,19}}-{monthlz}-{daylz}")),
        (YearMonth, format!("{year4}-{month}")),
        (Dashed, format!("{year}-{month}-{day}")),
        (DayMonthWord, format!("{day}{between}{month_word}{between}{year}")),
        (Pointed, format!(r"{day}[.\t-]{month}[.-]{year4}")),
        (PointedTwoDigits, format!(r"{day}[.\t]{month}\.[0-9]{{2}}")),
        (MonthWordYear, format!("{month_word}{between}{year4}")),
        (YearMonthWord, format!("{year4}{between}{month_word}")),
        (MonthWordDay, format!(r"(?:{month_word}{between}{day}[,.stndrh\t ]+{year}|{month_day})")),
        (DayMonthWordAlone, format!("{day}{between}{month_word}")),
        (Compact, format!("{year4}{monthlz}{daylz}")),
        (
            DateTime,
            format!(
                "(?:{year4}{monthlz}{daylz}T{hour24}:{minutelz}:{secondlz}\
                 |{year4}{monthlz}{daylz}[tT]{hour24}{minutelz}{secondlz}\
                 |{year4}-{monthlz}-{daylz}T{hour24lz}:{minutelz}:{secondlz}{fraction}{zone_offset}?\
                 |{year4}-{month}-{day}T{hour24}:{minute}:{second}\
                 |{year4}:{monthlz}:{daylz} {hour24lz}:{minutelz}:{secondlz})"
            ),
        ),
        (YearDay, format!("{year4}[.-]?{day_of_year}")),
        (WeekDate, format!("{year4}-?W{week_of_year}-?[0-7]")),
        (Week, format!("{year4}-?W{week_of_year}")),
        (MonthWordDashed, format!("{month_short}-{daylz}-{year}")),
        (YearMonthWordDashed, format!("{year}-{month_short}-{daylz}")),
        (
            ServerLog,
            format!("{day}/{month_short}/{year4}:{hour24lz}:{minutelz}:{secondlz}{space}{zone_offset}"),
        ),
        (Year, year4.to_owned()),
        (Ago, "(?i:ago)".to_owned()),
        (Weekday, day_word.clone()),
        (RelativeWeek, format!("{direction}{space}(?i:week)")),
        (RelativeWord, format!("(?:{ordinal}|{direction}){space}{unit}")),
        (MonthWord, format!("(?:{month_full}|{month_short})")),
        (Zone, format!("(?:{zone_offset}|{zone_name})")),
        (MonthWordDayClock12, format!("{month_day}(?:{clock_short12}|{clock_long12})")),
        (MonthWordDayClock24, format!("{month_day}(?:{clock_short24}|{clock_long24}|{clock_zone})")),
        (Relative, format!(r"[+-]*[ \t]*[0-9]{{1,13}}(?:{space})?(?:{unit}|(?i:week))")),
        (Nothing, format!(r"(?:[.,]|{space}|[\x00\n])")),
    ]
}

struct Grammar {
    machine: DFA,
    pieces: Vec<Piece>,
}

static GRAMMAR: LazyLock<Grammar> = LazyLock::new(|| {
    let (pieces, patterns): (Vec<Piece>, Vec<String>) = pieces().into_iter().unzip();
    let machine = DFA::builder()
        .configure(
            DFA::config().match_kind(MatchKind::All).skip_cache_capacity_check(true).cache_capacity(1 << 20),
        )
        .syntax(syntax::Config::new().unicode(false).utf8(false))
        .thompson(regex_automata::nfa::thompson::Config::new().utf8(false))
        .build_many(&patterns)
        .expect("the pieces are regular expressions");
    Grammar { machine, pieces }
});

thread_local! {
    /// What the machine has found out about itself so far.
    static CACHE: RefCell<Option<Cache>> = const { RefCell::new(None) };
}

/// The piece that begins at a byte, and where it ends; none where nothing fits.
pub fn piece_at(text: &[u8], start: usize) -> Result<Option<(Piece, usize)>> {
    let grammar = &*GRAMMAR;
    CACHE.with_borrow_mut(|cache| {
        let cache = cache.get_or_insert_with(|| grammar.machine.create_cache());
        let input = Input::new(text).range(start..).anchored(Anchored::Yes);
        let found = grammar.machine.try_search_fwd(cache, &input);
        let found = found.map_err(|error| Error::bug(format!("reading a date: {error}")))?;
        Ok(found.map(|found| (grammar.pieces[found.pattern().as_usize()], found.offset())))
    })
}
