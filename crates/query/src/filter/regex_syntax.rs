//! From PCRE's syntax to that of the engines.
//!
//! The two agree on most patterns and differ where it hurts: in PCRE `\d`, `\w`, `\s` and `\b` know ASCII
//! only, `$` also matches before a final newline, `{` and `[` may be literal, whitespace in a class
//! is never ignored, and `a++` is possessive. The pattern is read once and written anew, every
//! literal escaped, so that nothing depends on what the engines do with doubtful syntax.
//!
//! Errors are PCRE's sentences, since users know them.

pub(super) struct Translated {
    pub text: String,
    /// Whether it needs the backtracking engine.
    pub backtracking: bool,
}

type Failure = &'static str;

const BOUNDARY: &str = "(?-u:\\b)";
const VERTICAL: &str = "\\n\\x0B\\f\\r\\x{85}\\x{2028}\\x{2029}";
const HORIZONTAL: &str = "\\t \\x{A0}\\x{1680}\\x{180E}\\x{2000}-\\x{200A}\\x{202F}\\x{205F}\\x{3000}";

/// `wrapped` says that mongod puts the pattern into a group of its own first, as it does for filters.
pub(super) fn translate(pattern: &str, options: &str, wrapped: bool) -> Result<Translated, Failure> {
    let mut reader = Reader {
        wrapped,
        chars: pattern.chars().collect(),
        at: 0,
        out: String::with_capacity(pattern.len() + 16),
        modes: Modes { extended: options.contains('x'), multiline: options.contains('m') },
        open: Vec::new(),
        width: Width::of_group(),
        captures: 0,
        unicode_classes: false,
        backtracking: false,
        repeatable: false,
    };
    let flags: String = "is".chars().filter(|flag| options.contains(*flag)).collect();
    if !flags.is_empty() {
        reader.out.push_str(&format!("(?{flags})"));
    }
    reader.leading_verbs()?;
    while let Some(next) = reader.next() {
        reader.item(next)?;
    }
    if !reader.open.is_empty() {
        return Err("missing )");
    }
    // The backtracking engine has no ASCII word boundary.
    let text = if reader.backtracking { reader.out.replace(BOUNDARY, "\\b") } else { reader.out };
    Ok(Translated { text, backtracking: reader.backtracking })
}

/// Options that this module applies itself; they are scoped by groups.
#[derive(Clone, Copy)]
struct Modes {
    extended: bool,
    multiline: bool,
}

struct Reader {
    wrapped: bool,
    chars: Vec<char>,
    at: usize,
    out: String,
    modes: Modes,
    open: Vec<Open>,
    /// How much the innermost open group matches, so far.
    width: Width,
    captures: u32,
    unicode_classes: bool,
    backtracking: bool,
    /// Whether a quantifier may follow.
    repeatable: bool,
}

/// An open group: what to return to when it closes.
struct Open {
    modes: Modes,
    width: Width,
    kind: Group,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Plain,
    /// Looks ahead, and so is no part of the match.
    Ahead,
    /// Looks behind: PCRE goes back by a number of characters that it must know.
    Behind,
    /// Takes one of two alternatives.
    Conditional,
}

/// How many characters a part of a pattern matches; `None` where that varies.
type Characters = Option<usize>;

/// The widths of a group's alternatives.
struct Width {
    /// Of those before the present one.
    before: Vec<Characters>,
    /// Of the present one up to its last item, and of that item.
    present: (Characters, Characters),
}

impl Width {
    fn of_group() -> Width {
        Width { before: Vec::new(), present: (Some(0), Some(0)) }
    }

    fn add(&mut self, item: Characters) {
        let (before, last) = self.present;
        self.present = (sum(before, last), item);
    }

    /// The last item comes so many times.
    fn repeat(&mut self, times: Option<usize>) {
        self.present.1 = self.present.1.zip(times).map(|(once, times)| once.saturating_mul(times));
    }

    fn next_alternative(&mut self) {
        self.before.push(sum(self.present.0, self.present.1));
        self.present = (Some(0), Some(0));
    }

    fn alternatives(mut self) -> Vec<Characters> {
        self.next_alternative();
        self.before
    }
}

fn sum(one: Characters, other: Characters) -> Characters {
    one.zip(other).map(|(one, other)| one.saturating_add(other))
}

/// One member of a character class.
enum Member {
    Char(char),
    /// Written as it shall stand within brackets.
    Set(String),
}

impl Reader {
    fn next(&mut self) -> Option<char> {
        let next = self.chars.get(self.at).copied();
        self.at += usize::from(next.is_some());
        next
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn take(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(expected);
        self.at += usize::from(found);
        found
    }

    fn take_text(&mut self, expected: &str) -> bool {
        let found =
            expected.chars().enumerate().all(|(ahead, one)| self.chars.get(self.at + ahead) == Some(&one));
        if found {
            self.at += expected.chars().count();
        }
        found
    }

    /// Reads up to a closing character, which is consumed.
    fn until(&mut self, close: char) -> Option<String> {
        let length = self.chars[self.at..].iter().position(|&one| one == close)?;
        let text = self.chars[self.at..self.at + length].iter().collect();
        self.at += length + 1;
        Some(text)
    }

    fn leading_verbs(&mut self) -> Result<(), Failure> {
        while self.take_text("(*") {
            match self.until(')').as_deref() {
                Some("UTF8" | "UTF") => {}
                Some("UCP") => self.unicode_classes = true,
                _ => return Err("(*VERB) not recognized or malformed"),
            }
        }
        Ok(())
    }

    fn item(&mut self, next: char) -> Result<(), Failure> {
        match next {
            '\\' => return self.escape(),
            '[' => {
                let class = self.class()?;
                self.out.push_str(&class);
                self.width.add(Some(1));
            }
            '(' => return self.group(),
            ')' => self.close_group()?,
            '|' => {
                self.out.push('|');
                self.width.next_alternative();
                self.repeatable = false;
                return Ok(());
            }
            '^' => {
                self.out.push_str(if self.modes.multiline { "(?m:^)" } else { "^" });
                self.width.add(Some(0));
            }
            '$' => self.end_of_line(),
            '.' => {
                self.out.push('.');
                self.width.add(Some(1));
            }
            '*' | '+' | '?' => return self.quantifier(&next.to_string()),
            '{' => match self.counted()? {
                Some(text) => return self.quantifier(&text),
                None => self.literal('{'),
            },
            space if self.modes.extended && space.is_ascii_whitespace() => return Ok(()),
            '#' if self.modes.extended => {
                if self.until('\n').is_none() {
                    // An open comment hides the end of the group around the pattern.
                    if self.wrapped {
                        return Err("missing )");
                    }
                    self.at = self.chars.len();
                }
                return Ok(());
            }
            literal => self.literal(literal),
        }
        self.repeatable = true;
        Ok(())
    }

    fn close_group(&mut self) -> Result<(), Failure> {
        let Open { modes, width, kind } = self.open.pop().ok_or("unmatched parentheses")?;
        self.modes = modes;
        let alternatives = std::mem::replace(&mut self.width, width).alternatives();
        if kind == Group::Behind && alternatives.contains(&None) {
            return Err("lookbehind assertion is not fixed length");
        }
        if kind == Group::Conditional && alternatives.len() > 2 {
            return Err("conditional group contains more than two branches");
        }
        self.width.add(match kind {
            Group::Ahead | Group::Behind => Some(0),
            // Without a second alternative it matches nothing in its place.
            Group::Conditional if alternatives.len() == 1 => alternatives[0].filter(|&width| width == 0),
            _ if alternatives.iter().all(|width| *width == alternatives[0]) => alternatives[0],
            _ => None,
        });
        self.out.push(')');
        Ok(())
    }

    fn literal(&mut self, one: char) {
        self.width.add(Some(1));
        if one.is_ascii_alphanumeric() || !one.is_ascii() {
            self.out.push(one);
        } else {
            self.out.push_str(&format!("\\x{{{:X}}}", one as u32));
        }
        self.repeatable = true;
    }

    /// `$` matches at the end and before a final newline. Where nothing can follow, consuming that
    /// newline is as good as looking at it, and stays with the linear engine.
    fn end_of_line(&mut self) {
        let rest = &self.chars[self.at..];
        let last = match self.open.len() {
            0 => matches!(rest.first(), None | Some('|')),
            _ => rest.iter().all(|&one| one == ')'),
        };
        if self.modes.multiline {
            self.out.push_str("(?m:$)");
        } else if last {
            self.out.push_str("(?:\\n?\\z)");
        } else {
            self.backtracking = true;
            self.out.push_str("(?=\\n?\\z)");
        }
    }

    /// Writes a quantifier with what modifies it.
    fn quantifier(&mut self, text: &str) -> Result<(), Failure> {
        if !self.repeatable {
            return Err("nothing to repeat");
        }
        let times = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        self.width.repeat(times.and_then(|times| times.parse().ok()));
        self.out.push_str(text);
        if self.take('?') {
            self.out.push('?');
        } else if self.take('+') {
            self.out.push('+');
            self.backtracking = true;
        }
        // Only a counted repetition can follow another: `a{2}{3}`.
        self.repeatable = self.peek() == Some('{');
        Ok(())
    }

    /// `{2}`, `{2,}`, `{2,3}` behind the brace; anything else leaves the brace a literal.
    fn counted(&mut self) -> Result<Option<String>, Failure> {
        let start = self.at;
        let digits = |reader: &mut Reader| {
            let from = reader.at;
            while reader.peek().is_some_and(|one| one.is_ascii_digit()) {
                reader.at += 1;
            }
            reader.chars[from..reader.at].iter().collect::<String>()
        };
        let least = digits(self);
        let comma = self.take(',');
        let most = if comma { digits(self) } else { String::new() };
        if least.is_empty() || !self.take('}') {
            self.at = start;
            return Ok(None);
        }
        const REPEAT_MAX: u32 = 65_535;
        let parse = |text: &str| text.parse::<u32>().ok().filter(|&count| count <= REPEAT_MAX);
        let low = parse(&least).ok_or("number too big in {} quantifier")?;
        if !comma {
            return Ok(Some(format!("{{{low}}}")));
        }
        if most.is_empty() {
            return Ok(Some(format!("{{{low},}}")));
        }
        let high = parse(&most).ok_or("number too big in {} quantifier")?;
        if high < low {
            return Err("numbers out of order in {} quantifier");
        }
        Ok(Some(format!("{{{low},{high}}}")))
    }

    fn group(&mut self) -> Result<(), Failure> {
        let before = self.modes;
        if self.take('*') {
            return Err("(*VERB) not recognized or malformed");
        }
        if !self.take('?') {
            self.captures += 1;
            return self.open_group("(", before, Group::Plain);
        }
        if self.take('#') {
            return self.until(')').map(|_| ()).ok_or("missing ) after comment");
        }
        for (ahead, look, kind) in [
            ("=", "(?=", Group::Ahead),
            ("!", "(?!", Group::Ahead),
            ("<=", "(?<=", Group::Behind),
            ("<!", "(?<!", Group::Behind),
            (">", "(?>", Group::Plain),
        ] {
            if self.take_text(ahead) {
                self.backtracking = true;
                return self.open_group(look, before, kind);
            }
        }
        if self.take(':') {
            return self.open_group("(?:", before, Group::Plain);
        }
        if self.take('(') {
            return self.conditional(before);
        }
        for (ahead, close) in [("P<", '>'), ("<", '>'), ("'", '\'')] {
            if self.take_text(ahead) {
                let name = self.until(close).ok_or("syntax error in subpattern name (missing terminator)")?;
                self.captures += 1;
                return self.open_group(&format!("(?P<{name}>"), before, Group::Plain);
            }
        }
        if self.take_text("P=") {
            let name = self.until(')').ok_or("missing )")?;
            self.back_reference(&format!("\\k<{name}>"));
            return Ok(());
        }
        self.inline_flags(before)
    }

    /// `(?(1)a|b)`, `(?(name)a|b)`: what is matched depends on whether a group has matched.
    fn conditional(&mut self, before: Modes) -> Result<(), Failure> {
        let condition = self.until(')').ok_or("missing )")?;
        let name = condition.trim_matches(|one| matches!(one, '<' | '>' | '\''));
        let is_number = !condition.is_empty() && condition.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = !name.is_empty() && name.chars().all(|one| one.is_alphanumeric() || one == '_');
        self.backtracking = true;
        match condition.as_str() {
            _ if is_number => {
                let number: u32 = condition.parse().unwrap_or(u32::MAX);
                if number == 0 || number > self.captures {
                    return Err("reference to non-existent subpattern");
                }
                self.open_group(&format!("(?({number})"), before, Group::Conditional)
            }
            "R" | "DEFINE" => Err("recursion and definitions are not supported"),
            _ if is_name => self.open_group(&format!("(?(<{name}>)"), before, Group::Conditional),
            _ => Err("a condition other than whether a group has matched is not supported"),
        }
    }

    fn open_group(&mut self, text: &str, before: Modes, kind: Group) -> Result<(), Failure> {
        self.out.push_str(text);
        let width = std::mem::replace(&mut self.width, Width::of_group());
        self.open.push(Open { modes: before, width, kind });
        self.repeatable = false;
        Ok(())
    }

    /// `(?i)`, `(?s-m)`, `(?x:...)`.
    fn inline_flags(&mut self, before: Modes) -> Result<(), Failure> {
        let (mut on, mut off, mut negative) = (String::new(), String::new(), false);
        loop {
            match self.next().ok_or("missing )")? {
                '-' if !negative => negative = true,
                'm' => self.modes.multiline = !negative,
                'x' => self.modes.extended = !negative,
                flag @ ('i' | 's' | 'U') => if negative { &mut off } else { &mut on }.push(flag),
                end @ (')' | ':') => {
                    let dash = if off.is_empty() { "" } else { "-" };
                    let flags = format!("{on}{dash}{off}");
                    if end == ':' {
                        return self.open_group(&format!("(?{flags}:"), before, Group::Plain);
                    }
                    if !flags.is_empty() {
                        self.out.push_str(&format!("(?{flags})"));
                    }
                    self.repeatable = false;
                    return Ok(());
                }
                'R' | '&' | '|' | 'P' | '0'..='9' => {
                    return Err("recursion and branch resets are not supported");
                }
                _ => return Err("unrecognized character after (? or (?-"),
            }
        }
    }

    fn back_reference(&mut self, text: &str) {
        self.width.add(None);
        self.out.push_str(text);
        self.backtracking = true;
        self.repeatable = true;
    }

    fn escape(&mut self) -> Result<(), Failure> {
        let next = self.next().ok_or("\\ at end of pattern")?;
        let simple = match next {
            'A' => "\\A",
            'z' => "\\z",
            'Z' => {
                let multiline = std::mem::replace(&mut self.modes.multiline, false);
                self.end_of_line();
                self.modes.multiline = multiline;
                ""
            }
            'b' if self.unicode_classes => "\\b",
            'b' => BOUNDARY,
            'B' => "\\B",
            'N' => "[^\\n]",
            'R' => "(?:\\r\\n|[\\n\\x0B\\f\\r\\x{85}\\x{2028}\\x{2029}])",
            'K' | 'G' => {
                self.backtracking = true;
                if next == 'K' { "\\K" } else { "\\G" }
            }
            'E' => return Ok(()),
            'Q' => {
                while self.at < self.chars.len() && !self.take_text("\\E") {
                    let quoted = self.chars[self.at];
                    self.at += 1;
                    self.literal(quoted);
                }
                return Ok(());
            }
            'k' => {
                let close = match self.next() {
                    Some('<') => '>',
                    Some('{') => '}',
                    Some('\'') => '\'',
                    _ => return Err("\\k is not followed by a braced, angle-bracketed, or quoted name"),
                };
                let name = self.until(close).ok_or("syntax error in subpattern name (missing terminator)")?;
                self.back_reference(&format!("\\k<{name}>"));
                return Ok(());
            }
            'g' => return self.numbered_reference(),
            '1'..='9' => {
                self.at -= 1;
                return self.digits();
            }
            _ => {
                match self.shared_escape(next)? {
                    Member::Char(one) => self.literal(one),
                    Member::Set(set) => {
                        self.width.add(Some(1));
                        self.out.push('[');
                        self.out.push_str(&set);
                        self.out.push(']');
                    }
                }
                self.repeatable = true;
                return Ok(());
            }
        };
        self.out.push_str(simple);
        self.width.add(match next {
            'N' => Some(1),
            'R' => None,
            _ => Some(0),
        });
        self.repeatable = true;
        Ok(())
    }

    /// `\12`: a group if there is one of that number or it is one digit, else an octal code.
    fn digits(&mut self) -> Result<(), Failure> {
        let from = self.at;
        while self.peek().is_some_and(|one| one.is_ascii_digit()) {
            self.at += 1;
        }
        let text: String = self.chars[from..self.at].iter().collect();
        let number: u32 = text.parse().unwrap_or(u32::MAX);
        if number < 10 || number <= self.captures {
            self.back_reference(&format!("\\{number}"));
            return Ok(());
        }
        self.at = from;
        let code = self.octal(3);
        self.literal(code);
        Ok(())
    }

    /// `\g1`, `\g{1}`, `\g{-1}`, `\g{name}`.
    fn numbered_reference(&mut self) -> Result<(), Failure> {
        const MALFORMED: Failure =
            "a numbered reference must not be zero, or \\g is not followed by a reference";
        let text = if self.take('{') {
            self.until('}').ok_or(MALFORMED)?
        } else {
            let from = self.at;
            self.at += usize::from(self.peek() == Some('-'));
            while self.peek().is_some_and(|one| one.is_ascii_digit()) {
                self.at += 1;
            }
            self.chars[from..self.at].iter().collect()
        };
        match text.parse::<i64>() {
            Ok(number) => {
                let number = if number < 0 { i64::from(self.captures) + 1 + number } else { number };
                if number <= 0 {
                    return Err(MALFORMED);
                }
                self.back_reference(&format!("\\{number}"));
            }
            Err(_) if text.is_empty() => return Err(MALFORMED),
            Err(_) => self.back_reference(&format!("\\k<{text}>")),
        }
        Ok(())
    }

    fn octal(&mut self, digits_max: usize) -> char {
        let mut code = 0;
        for _ in 0..digits_max {
            match self.peek().and_then(|one| one.to_digit(8)) {
                Some(digit) => code = code * 8 + digit,
                None => break,
            }
            self.at += 1;
        }
        char::from_u32(code).unwrap_or('\0')
    }

    /// Escapes that mean the same inside and outside of a class.
    fn shared_escape(&mut self, letter: char) -> Result<Member, Failure> {
        let set = |text: &str| Ok(Member::Set(text.to_owned()));
        if self.unicode_classes && "dDwWsS".contains(letter) {
            return Ok(Member::Set(format!("\\{letter}")));
        }
        match letter {
            'd' => set("0-9"),
            'D' => set("[^0-9]"),
            'w' => set("0-9A-Za-z_"),
            'W' => set("[^0-9A-Za-z_]"),
            's' => set("\\t\\n\\x0B\\f\\r\\x20"),
            'S' => set("[^\\t\\n\\x0B\\f\\r\\x20]"),
            'h' => set(HORIZONTAL),
            'H' => Ok(Member::Set(format!("[^{HORIZONTAL}]"))),
            'v' => set(VERTICAL),
            'V' => Ok(Member::Set(format!("[^{VERTICAL}]"))),
            'a' => Ok(Member::Char('\x07')),
            'e' => Ok(Member::Char('\x1B')),
            'f' => Ok(Member::Char('\x0C')),
            'n' => Ok(Member::Char('\n')),
            'r' => Ok(Member::Char('\r')),
            't' => Ok(Member::Char('\t')),
            'c' => {
                let control = self.next().filter(char::is_ascii).ok_or("\\c at end of pattern")?;
                Ok(Member::Char((control.to_ascii_uppercase() as u8 ^ 0x40) as char))
            }
            '0' => Ok(Member::Char(self.octal(2))),
            'o' => {
                if !self.take('{') {
                    return Err("missing opening brace after \\o");
                }
                let text = self.until('}').ok_or("non-octal character in \\o{} (closing brace missing?)")?;
                let code = u32::from_str_radix(&text, 8).ok().and_then(char::from_u32);
                code.map(Member::Char).ok_or("character value in \\x{} or \\o{} is too large")
            }
            'x' => self.hexadecimal().map(Member::Char),
            'p' | 'P' => self.property(letter),
            'u' | 'U' | 'l' | 'L' => Err("PCRE does not support \\L, \\l, \\N{name}, \\U, or \\u"),
            other => Ok(Member::Char(other)),
        }
    }

    fn hexadecimal(&mut self) -> Result<char, Failure> {
        const TOO_LARGE: Failure = "character value in \\x{} or \\o{} is too large";
        if self.take('{') {
            let text = self.until('}').ok_or("non-hex character in \\x{} (closing brace missing?)")?;
            return u32::from_str_radix(&text, 16).ok().and_then(char::from_u32).ok_or(TOO_LARGE);
        }
        let mut code = 0;
        for _ in 0..2 {
            match self.peek().and_then(|one| one.to_digit(16)) {
                Some(digit) => code = code * 16 + digit,
                None => break,
            }
            self.at += 1;
        }
        char::from_u32(code).ok_or(TOO_LARGE)
    }

    fn property(&mut self, letter: char) -> Result<Member, Failure> {
        const MALFORMED: Failure = "malformed \\P or \\p sequence";
        let name = match self.next().ok_or(MALFORMED)? {
            '{' => self.until('}').ok_or(MALFORMED)?,
            single => single.to_string(),
        };
        let (name, negated) = match name.strip_prefix('^') {
            Some(name) => (name, letter == 'p'),
            None => (&*name, letter == 'P'),
        };
        let name = if name == "L&" { "LC" } else { name };
        if name.is_empty() || !name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_') {
            return Err("unknown property name after \\P or \\p");
        }
        Ok(Member::Set(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' })))
    }

    fn class(&mut self) -> Result<String, Failure> {
        let mut text = String::from("[");
        if self.take('^') {
            text.push('^');
        }
        let mut first = true;
        loop {
            if !first && self.take(']') {
                break;
            }
            let Some(member) = self.class_member()? else {
                first = false;
                continue;
            };
            first = false;
            let low = match member {
                Member::Char(low) => low,
                Member::Set(set) => {
                    text.push_str(&set);
                    continue;
                }
            };
            push_code(&mut text, low);
            let dash = self.at;
            if self.take('-') {
                if matches!(self.peek(), Some(']') | None) {
                    self.at = dash;
                } else {
                    match self.class_member()? {
                        Some(Member::Char(high)) if high < low => {
                            return Err("range out of order in character class");
                        }
                        Some(Member::Char(high)) => {
                            text.push('-');
                            push_code(&mut text, high);
                        }
                        Some(Member::Set(set)) => {
                            push_code(&mut text, '-');
                            text.push_str(&set);
                        }
                        None => push_code(&mut text, '-'),
                    }
                }
            }
        }
        text.push(']');
        Ok(text)
    }

    /// The next member; none for an `\E` without a `\Q`.
    fn class_member(&mut self) -> Result<Option<Member>, Failure> {
        let next = self.next().ok_or("missing terminating ] for character class")?;
        Ok(Some(match next {
            '[' if self.peek() == Some(':') => match self.posix_class()? {
                Some(set) => Member::Set(set),
                None => Member::Char('['),
            },
            '\\' => match self.next().ok_or("\\ at end of pattern")? {
                'b' => Member::Char('\x08'),
                'E' => return Ok(None),
                'Q' => {
                    let mut set = String::new();
                    while self.at < self.chars.len() && !self.take_text("\\E") {
                        push_code(&mut set, self.chars[self.at]);
                        self.at += 1;
                    }
                    Member::Set(set)
                }
                '1'..='7' => {
                    self.at -= 1;
                    Member::Char(self.octal(3))
                }
                letter => self.shared_escape(letter)?,
            },
            literal => Member::Char(literal),
        }))
    }

    /// `[:alpha:]`, of which the opening bracket is consumed.
    fn posix_class(&mut self) -> Result<Option<String>, Failure> {
        const NAMES: [&str; 14] = [
            "alpha", "lower", "upper", "alnum", "ascii", "blank", "cntrl", "digit", "graph", "print",
            "punct", "space", "word", "xdigit",
        ];
        let start = self.at;
        self.at += 1;
        let negated = self.take('^');
        let mut name = String::new();
        while let Some(letter) = self.peek().filter(char::is_ascii_lowercase) {
            name.push(letter);
            self.at += 1;
        }
        if !self.take_text(":]") {
            self.at = start;
            return Ok(None);
        }
        if !NAMES.contains(&&*name) {
            return Err("unknown POSIX class name");
        }
        Ok(Some(format!("[:{}{name}:]", if negated { "^" } else { "" })))
    }
}

fn push_code(text: &mut String, one: char) {
    if one.is_ascii_alphanumeric() {
        text.push(one);
    } else {
        text.push_str(&format!("\\x{{{:X}}}", one as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Regex;

    #[test]
    fn patterns_mean_what_pcre_means() {
        for (pattern, options, text, expected) in [
            ("^\\d+$", "", "123", true),
            ("^\\d+$", "", "\u{663}", false),
            ("\\w", "", "é", false),
            ("[\\W]", "", "é", true),
            ("É", "i", "é", true),
            ("a$", "", "a\n", true),
            ("a$", "", "a\nb", false),
            ("a$", "m", "a\nb", true),
            ("a$\\n", "", "a\n", true),
            ("^b", "", "a\nb", false),
            ("^b", "m", "a\nb", true),
            ("a.b", "", "a\nb", false),
            ("a.b", "s", "a\nb", true),
            ("a b # c\n", "x", "ab", true),
            ("a[ ]b", "x", "a b", true),
            ("a{,2}", "", "a{,2}", true),
            ("{", "", "{", true),
            ("a{2}", "", "aa", true),
            ("[]a]", "", "]", true),
            ("[^]a]", "", "a", false),
            ("[[a]", "", "[", true),
            ("[a&&b]", "", "&", true),
            ("[a-]", "", "-", true),
            ("[\\d-z]", "", "-", true),
            ("[[:alpha:]]+$", "", "abc", true),
            ("a++a", "", "aaa", false),
            ("(?>a+)b", "", "aab", true),
            ("a(?=b)", "", "ab", true),
            ("a(?!b)", "", "ab", false),
            ("(?<=a)b", "", "ab", true),
            ("(a)\\1", "", "aa", true),
            ("(?<x>a)\\k<x>", "", "aa", true),
            ("(?P<x>a)(?P=x)", "", "aa", true),
            ("(a)\\g{-1}", "", "aa", true),
            ("(?i)abc", "", "ABC", true),
            ("a(?i:b)c", "", "aBc", true),
            ("a(?i:b)c", "", "aBC", false),
            ("(?m)^b$", "", "a\nb\nc", true),
            ("\\Qa.b\\E", "", "a.b", true),
            ("\\Qa.b\\E", "", "axb", false),
            ("\\x41\\x{42}\\103", "", "ABC", true),
            ("\\y", "", "y", true),
            ("a\\/b", "", "a/b", true),
            ("\\bfoo\\b", "", "a foo b", true),
            ("(?#comment)a", "", "a", true),
            ("^$", "", "", true),
            ("\\p{Lu}", "", "É", true),
            ("a\\Z", "", "a\n", true),
            ("a\\z", "", "a\n", false),
            ("\\h", "", "\u{a0}", true),
            ("(*UCP)\\w", "", "é", true),
        ] {
            let regex = Regex::new(pattern, options).unwrap();
            assert_eq!(regex.is_match(text), expected, "{regex:?} on {text:?}");
        }
    }

    #[test]
    fn malformed_patterns_get_the_sentence_of_pcre() {
        for (pattern, expected) in [
            ("(", "missing )"),
            (")", "unmatched parentheses"),
            ("*", "nothing to repeat"),
            ("a**", "nothing to repeat"),
            ("[a", "missing terminating ] for character class"),
            ("[z-a]", "range out of order in character class"),
            ("a\\", "\\ at end of pattern"),
            ("a{2,1}", "numbers out of order in {} quantifier"),
            ("a{99999}", "number too big in {} quantifier"),
        ] {
            let error = Regex::new(pattern, "").unwrap_err();
            assert_eq!(error.code().0, 51091);
            assert_eq!(error.to_string(), format!("Regular expression is invalid: {expected}"));
        }
    }
}
