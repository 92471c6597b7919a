//! What collations are and do, beside what the specs say.

use std::cmp::Ordering;

use kilim_bson::{Collator, RawValue, doc};
use proptest::prelude::*;

use crate::Collation;

fn collation(document: kilim_bson::Document) -> Collation {
    Collation::parse(document.as_raw()).unwrap().unwrap()
}

#[test]
fn the_simple_collation_is_none() {
    assert_eq!(Collation::parse(doc! {}.as_raw()).unwrap(), None);
    assert_eq!(Collation::parse(doc! {"locale": "simple", "strength": 2}.as_raw()).unwrap(), None);
}

#[test]
fn what_was_met_lately_is_what_it_was() {
    for _ in 0..2 {
        for strength in 1..=5 {
            for locale in ["en", "fr", "de"] {
                let met = collation(doc! {"locale": locale, "strength": strength});
                let shown = met.to_document();
                assert!(matches!(shown.get("strength"), Some(RawValue::Int32(shown)) if shown == strength));
                assert_eq!(met.locale(), locale);
            }
        }
    }
}

#[test]
fn strengths_tell_letters_accents_and_case_apart() {
    for (strength, accent, case) in [
        (1, Ordering::Equal, Ordering::Equal),
        (2, Ordering::Less, Ordering::Equal),
        (3, Ordering::Less, Ordering::Less),
    ] {
        let collation = collation(doc! {"locale": "en", "strength": strength});
        assert_eq!(collation.compare("cote", "coté"), accent);
        assert_eq!(collation.compare("cote", "Cote"), case);
        assert_eq!(collation.compare("cote", "d"), Ordering::Less);
    }
}

#[test]
fn accents_count_from_the_back_where_asked_for() {
    let forwards = collation(doc! {"locale": "fr"});
    let canadian = collation(doc! {"locale": "fr_CA"});
    let turned = collation(doc! {"locale": "fr", "backwards": true});
    let straight = collation(doc! {"locale": "fr_CA", "backwards": false});
    let order = |collation: &Collation| {
        let mut words = ["cote", "côte", "coté", "côté"];
        words.sort_by(|left, right| collation.compare(left, right));
        words
    };
    assert_eq!(order(&forwards), ["cote", "coté", "côte", "côté"]);
    assert_eq!(order(&canadian), ["cote", "côte", "coté", "côté"]);
    assert_eq!(order(&turned), order(&canadian));
    assert_eq!(order(&straight), order(&forwards));
}

#[test]
fn every_locale_makes_a_collator_or_is_refused_by_name() {
    let mut refused = Vec::new();
    for locale in crate::locale::all() {
        if let Err(error) = Collation::parse(doc! {"locale": locale.as_str()}.as_raw()) {
            assert!(error.to_string().contains("is not supported by Kilim"), "{error}");
            let variant = locale.split_once('@').map(|(_, variant)| variant.to_owned());
            refused.push(variant.unwrap_or(locale));
        }
    }
    refused.sort();
    refused.dedup();
    let variants = ["big5han", "gb2312han", "phonetic", "search", "searchjl", "standard"];
    let expected: Vec<String> = variants.iter().map(|variant| format!("collation={variant}")).collect();
    assert_eq!(refused[..6], expected);
    assert_eq!(refused[6..], ["haw", "kl", "lkt", "ln", "se", "smn", "yi"]);
}

/// Texts with much that is ignored, combined, expanded or numbered.
fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            4 => proptest::char::range(' ', '~'),
            1 => proptest::sample::select(vec![
                'é', 'É', 'e', '\u{301}', '\u{327}', 'ß', 'æ', 'Å', 'ø', '\0', '\u{1}', '\u{200d}', 'あ', 'ア', '漢', '가',
                'ㄱ', 'ł', 'ǆ', '١', '𝟙', '\u{fffe}', '\u{10ffff}', 'ไ', 'ก', 'ı', 'İ', 'σ', 'ς',
            ]),
            1 => any::<char>(),
        ],
        0..8,
    )
    .prop_map(|chars| chars.into_iter().collect())
}

fn any_collation() -> impl Strategy<Value = Collation> {
    (
        proptest::sample::select(vec!["en", "de", "fr_CA", "sv", "th", "ja", "zh", "vi", "lt", "ko", "da"]),
        1..=5i32,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        proptest::sample::select(vec!["off", "upper", "lower"]),
    )
        .prop_map(|(locale, strength, numeric, shifted, case_level, backwards, case_first)| {
            let case_first = if strength > 2 || case_level { case_first } else { "off" };
            collation(doc! {
                "locale": locale,
                "strength": strength,
                "numericOrdering": numeric,
                "alternate": if shifted { "shifted" } else { "non-ignorable" },
                "caseLevel": case_level,
                "caseFirst": case_first,
                "backwards": backwards && strength > 1,
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn keys_compare_as_texts_do(collation in any_collation(), left in text(), right in text()) {
        let key = |text: &str| {
            let mut key = Vec::new();
            collation.write_key(text, &mut key);
            key
        };
        prop_assert_eq!(key(&left).cmp(&key(&right)), collation.compare(&left, &right));
    }

    #[test]
    fn a_collation_is_what_its_document_says(collation in any_collation()) {
        prop_assert_eq!(&Collation::parse(collation.to_document().as_raw()).unwrap().unwrap(), &collation);
    }
}
