//! The locales that mongod knows, and what it takes for granted of some.
//!
//! A locale is written as ICU writes it: `de`, `de_AT`, `zh_Hant`, and behind `@collation=` the name of
//! another order of the same language. The list is mongod's, whatever our data could do besides.

/// Ascending.
const LOCALES: &[&str] = &[
    "af",
    "am",
    "ar",
    "as",
    "az",
    "be",
    "bg",
    "bn",
    "bo",
    "bs",
    "bs_Cyrl",
    "ca",
    "chr",
    "cs",
    "cy",
    "da",
    "de",
    "de_AT",
    "dsb",
    "dz",
    "ee",
    "el",
    "en",
    "en_US",
    "en_US_POSIX",
    "eo",
    "es",
    "et",
    "fa",
    "fa_AF",
    "fi",
    "fil",
    "fo",
    "fr",
    "fr_CA",
    "ga",
    "gl",
    "gu",
    "ha",
    "haw",
    "he",
    "hi",
    "hr",
    "hsb",
    "hu",
    "hy",
    "id",
    "ig",
    "is",
    "it",
    "ja",
    "ka",
    "kk",
    "kl",
    "km",
    "kn",
    "ko",
    "kok",
    "ky",
    "lb",
    "lkt",
    "ln",
    "lo",
    "lt",
    "lv",
    "mk",
    "ml",
    "mn",
    "mr",
    "ms",
    "mt",
    "my",
    "nb",
    "ne",
    "nl",
    "nn",
    "om",
    "or",
    "pa",
    "pl",
    "ps",
    "pt",
    "ro",
    "ru",
    "se",
    "si",
    "sk",
    "sl",
    "smn",
    "sq",
    "sr",
    "sr_Latn",
    "sv",
    "sw",
    "ta",
    "te",
    "th",
    "to",
    "tr",
    "ug",
    "uk",
    "ur",
    "vi",
    "wae",
    "yi",
    "yo",
    "zh",
    "zh_Hant",
    "zu",
];

/// Orders that every locale has.
const EVERYWHERE: &[&str] = &["emoji", "eor", "search"];

/// Orders that one locale has besides its own.
const VARIANTS: &[(&str, &[&str])] = &[
    ("ar", &["compat"]),
    ("bn", &["traditional"]),
    ("de", &["phonebook"]),
    ("de_AT", &["phonebook"]),
    ("es", &["traditional"]),
    ("fi", &["traditional"]),
    ("ja", &["unihan"]),
    ("kn", &["traditional"]),
    ("ko", &["searchjl", "unihan"]),
    ("ln", &["phonetic"]),
    ("si", &["dictionary"]),
    ("sv", &["standard"]),
    ("vi", &["traditional"]),
    ("zh", &["big5han", "gb2312han", "standard", "unihan", "zhuyin", "stroke"]),
    ("zh_Hant", &["big5han", "gb2312han", "pinyin", "standard", "unihan", "zhuyin"]),
];

/// Locales that ask for normalization when nothing is said of it. Ascending.
const NORMALIZED: &[&str] = &[
    "as", "bn", "el", "fa", "fa_AF", "gu", "he", "hi", "ig", "km", "kn", "kok", "mr", "my", "or", "pa", "ps",
    "si", "ta", "te", "th", "vi", "yi", "yo",
];

/// Languages whose order mongod has and our data have not: they would be ordered as no language is.
const WITHOUT_ORDER: &[&str] = &["haw", "kl", "lkt", "ln", "se", "smn", "yi"];

/// Whether the data have the order that a language has of its own.
pub(crate) fn has_own_order(base: &str) -> bool {
    !WITHOUT_ORDER.contains(&base)
}

/// What a locale says where the user said nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Defaults {
    pub(crate) upper_first: bool,
    pub(crate) shifted: bool,
    pub(crate) normalization: bool,
    pub(crate) backwards: bool,
}

impl Defaults {
    pub(crate) fn of(locale: &str) -> Defaults {
        let (base, variant) = split(locale);
        // The languages whose other order asks for normalization too are those whose own does; `eor` and
        // `emoji` are the root's.
        let normalized = NORMALIZED.binary_search(&base).is_ok();
        Defaults {
            upper_first: matches!(locale, "da" | "mt"),
            shifted: locale == "th",
            normalization: match variant {
                None => normalized,
                Some("search" | "searchjl") => true,
                Some(variant) => normalized && !EVERYWHERE.contains(&variant),
            },
            backwards: locale == "fr_CA",
        }
    }
}

/// A locale's parts: the language, with script and region, and the order if it is not the usual one.
pub(crate) fn split(locale: &str) -> (&str, Option<&str>) {
    match locale.split_once("@collation=") {
        Some((base, variant)) => (base, Some(variant)),
        None => (locale, None),
    }
}

pub(crate) fn is_known(locale: &str) -> bool {
    let (base, variant) = split(locale);
    LOCALES.binary_search(&base).is_ok() && variant.is_none_or(|variant| has_variant(base, variant))
}

fn has_variant(base: &str, variant: &str) -> bool {
    EVERYWHERE.contains(&variant)
        || VARIANTS.iter().any(|(locale, variants)| *locale == base && variants.contains(&variant))
}

/// The known locale that an unknown one was perhaps meant to be: written properly, and without what
/// is not known of it.
pub(crate) fn suggestion(locale: &str) -> Option<String> {
    let (name, keywords) = locale.split_once('@').map_or((locale, ""), |(name, rest)| (name, rest));
    if locale.ends_with('@') {
        return None;
    }
    let mut parts: Vec<String> = name
        .split(['_', '-'])
        .enumerate()
        .map(|(at, part)| match (at, part.len()) {
            (0, _) => part.to_ascii_lowercase(),
            (_, 4) => {
                let mut part = part.to_ascii_lowercase();
                if let Some(first) = part.get_mut(..1) {
                    first.make_ascii_uppercase();
                }
                part
            }
            _ => part.to_ascii_uppercase(),
        })
        .collect();
    let base = loop {
        let base = parts.join("_");
        if LOCALES.binary_search(&base.as_str()).is_ok() {
            break base;
        }
        parts.pop();
        if parts.is_empty() {
            return None;
        }
    };
    let variant = keywords.strip_prefix("collation=").unwrap_or_default().to_ascii_lowercase();
    Some(if has_variant(&base, &variant) { format!("{base}@collation={variant}") } else { base })
}

#[cfg(test)]
pub(crate) fn all() -> Vec<String> {
    let mut all: Vec<String> = LOCALES.iter().map(|&locale| locale.to_owned()).collect();
    for base in LOCALES {
        all.extend(EVERYWHERE.iter().map(|variant| format!("{base}@collation={variant}")));
    }
    for (base, variants) in VARIANTS {
        all.extend(variants.iter().map(|variant| format!("{base}@collation={variant}")));
    }
    all
}
