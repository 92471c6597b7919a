//! The literal prefix of a regular expression: `/^abc/` needs only the keys from "abc" to "abd".

/// What every matching string begins with, and whether beginning with it is all that is asked.
#[derive(Debug, PartialEq, Eq)]
pub struct Prefix {
    pub text: String,
    pub exact: bool,
}

/// Reads the prefix off an anchored pattern; `None` where there is none to rely on.
pub fn prefix_of(pattern: &str, options: &str) -> Option<Prefix> {
    let mut extended = false;
    let mut multiline = false;
    for option in options.chars() {
        match option {
            'x' => extended = true,
            'm' => multiline = true,
            's' => {}
            // Case folding and whatever else may match other first characters.
            _ => return None,
        }
    }
    // With `m`, `^` also matches behind a line break, while `\A` never does.
    let rest = match pattern.strip_prefix("\\A") {
        Some(rest) => rest,
        None if !multiline => pattern.strip_prefix('^')?,
        None => return None,
    };
    // An alternative may lack the prefix. A `|` inside `\Q…\E` or a class is refused too, which is safe.
    if rest.contains('|') {
        return None;
    }
    let (text, exact) = literal(rest, extended);
    (!text.is_empty() || exact).then_some(Prefix { text, exact })
}

fn literal(rest: &str, extended: bool) -> (String, bool) {
    let mut text = String::new();
    let mut chars = rest.chars().peekable();
    // Where the last literal begins, for a quantifier that makes it optional.
    let mut last = None;
    while let Some(char) = chars.next() {
        match char {
            '*' | '?' => {
                // The literal before may be absent.
                if let Some(at) = last {
                    text.truncate(at);
                }
                return (text, false);
            }
            '+' => return (text, false),
            '{' => {
                // A count of zero makes it optional.
                let repeats = chars.next().is_some_and(|digit| ('1'..='9').contains(&digit));
                if !repeats && let Some(at) = last {
                    text.truncate(at);
                }
                return (text, false);
            }
            '\\' => match chars.next() {
                Some('Q') => {
                    let quoted: String = chars.by_ref().collect();
                    let (inside, behind) = match quoted.split_once("\\E") {
                        Some((inside, behind)) => (inside, behind),
                        None => (&quoted[..], ""),
                    };
                    text.push_str(inside);
                    return (text, behind.is_empty());
                }
                Some(escaped) if !escaped.is_alphanumeric() => {
                    last = Some(text.len());
                    text.push(escaped);
                }
                _ => return (text, false),
            },
            '.' => {
                let everything = chars.next() == Some('*') && chars.next().is_none();
                return (text, everything);
            }
            '^' | '$' | '[' | ']' | '(' | ')' => return (text, false),
            '#' if extended => return (text, false),
            char if extended && char.is_ascii_whitespace() => {}
            char => {
                last = Some(text.len());
                text.push(char);
            }
        }
    }
    let exact = !text.is_empty();
    (text, exact)
}

/// The least string above all that begin with `prefix`; `None` where there is none.
pub fn end_of(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = match last {
            '\u{D7FF}' => Some('\u{E000}'),
            '\u{10FFFF}' => None,
            other => char::from_u32(other as u32 + 1),
        };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_those_that_mongod_finds() {
        for (pattern, options, expected) in [
            ("^abc", "", Some(("abc", true))),
            ("^abc.*", "", Some(("abc", true))),
            ("^abc.", "", Some(("abc", false))),
            ("abc", "", None),
            ("^abc", "i", None),
            ("^ab|c", "", None),
            ("^ab?c", "", Some(("a", false))),
            ("^ab*", "", Some(("a", false))),
            ("^", "", None),
            ("^abc", "m", None),
            ("\\Aabc", "m", Some(("abc", true))),
            ("^a\\.b", "", Some(("a.b", true))),
            ("^\\Qab.c\\E", "", Some(("ab.c", true))),
            ("^\\Qab.c\\Ed", "", Some(("ab.c", false))),
            ("^abc$", "", Some(("abc", false))),
            ("^a b", "x", Some(("ab", true))),
            ("^ab+", "", Some(("ab", false))),
            ("^ab{0}", "", Some(("a", false))),
            ("^ab{2}", "", Some(("ab", false))),
            ("^a\\d", "", Some(("a", false))),
            ("^(ab)", "", None),
            ("^.*", "", Some(("", true))),
            ("^ä", "", Some(("ä", true))),
            ("^ab", "u", None),
        ] {
            let found = prefix_of(pattern, options).map(|prefix| (prefix.text, prefix.exact));
            let expected = expected.map(|(text, exact): (&str, bool)| (text.to_owned(), exact));
            assert_eq!(found, expected, "/{pattern}/{options}");
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_the_next_string() {
        assert_eq!(end_of("abc").as_deref(), Some("abd"));
        assert_eq!(end_of("a\u{10FFFF}").as_deref(), Some("b"));
        assert_eq!(end_of(""), None);
    }
}
