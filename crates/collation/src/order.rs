//! A collation at work: ICU's collator with the options of a [`Spec`].
//!
//! The library takes all of MongoDB's options but two. `backwards` it knows only as a property of
//! Canadian French, so the data that say so are handed to it with that property set as asked for.
//! `normalization` it always does. An order that its data lack is refused, for the library alone would
//! take the language's usual one instead.

use std::cmp::Ordering;

use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, MaxVariable, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering, CollationType};
use icu_collator::provider::{
    Baked, CollationDiacriticsV1, CollationJamoV1, CollationMetadata, CollationMetadataV1,
    CollationReorderingV1, CollationRootV1, CollationSpecialPrimariesV1, CollationTailoringV1,
};
use icu_collator::{Collator, CollatorBorrowed, CollatorPreferences};
use icu_locale_core::Locale;
use icu_normalizer::provider::{Baked as NormalizerData, NormalizerNfdDataV1, NormalizerNfdTablesV1};
use icu_provider::prelude::*;
use kilim_error::{Error, ErrorCode, Result};

use crate::locale::{self, Defaults};
use crate::spec::{CaseFirst, Spec};

pub(crate) enum Order {
    /// From the data that lie in the program.
    Usual(CollatorBorrowed<'static>),
    /// With the direction of accents set otherwise than the data have it.
    Turned(Box<Collator>),
}

impl Order {
    pub(crate) fn new(spec: &Spec) -> Result<Order> {
        let unsupported = || {
            Error::user(
                ErrorCode::NotImplemented,
                format!("collation: locale '{}' is not supported by Kilim", spec.locale),
            )
        };
        let preferences = preferences(spec).ok_or_else(unsupported)?;
        if !has_data(&preferences) {
            return Err(unsupported());
        }
        let broken = |error: DataError| Error::Bug(format!("a collator of {}: {error}", spec.locale));
        let options = options(spec);
        Ok(if spec.backwards == Defaults::of(&spec.locale).backwards {
            Order::Usual(Collator::try_new(preferences, options).map_err(broken)?)
        } else {
            let data = Turned { backwards: spec.backwards };
            Order::Turned(Box::new(Collator::try_new_unstable(&data, preferences, options).map_err(broken)?))
        })
    }

    pub(crate) fn compare(&self, left: &str, right: &str) -> Ordering {
        match self {
            Order::Usual(collator) => collator.compare(left, right),
            Order::Turned(collator) => collator.as_borrowed().compare(left, right),
        }
    }

    pub(crate) fn write_key(&self, text: &str, out: &mut Vec<u8>) {
        let Ok(()) = match self {
            Order::Usual(collator) => collator.write_sort_key_to(text, out),
            Order::Turned(collator) => collator.as_borrowed().write_sort_key_to(text, out),
        };
    }
}

fn options(spec: &Spec) -> CollatorOptions {
    let mut options = CollatorOptions::default();
    options.strength = Some(match spec.strength {
        1 => Strength::Primary,
        2 => Strength::Secondary,
        3 => Strength::Tertiary,
        4 => Strength::Quaternary,
        _ => Strength::Identical,
    });
    options.alternate_handling =
        Some(if spec.shifted { AlternateHandling::Shifted } else { AlternateHandling::NonIgnorable });
    options.max_variable = Some(if spec.only_spaces { MaxVariable::Space } else { MaxVariable::Punctuation });
    options.case_level = Some(if spec.case_level { CaseLevel::On } else { CaseLevel::Off });
    options
}

/// What the library is asked for; `None` where it is known not to have it.
fn preferences(spec: &Spec) -> Option<CollatorPreferences> {
    let (base, variant) = locale::split(&spec.locale);
    if variant.is_none() && !locale::has_own_order(base) {
        return None;
    }
    let locale: Locale = base.replace('_', "-").parse().ok()?;
    let mut preferences = CollatorPreferences::from(&locale);
    preferences.collation_type = match variant {
        None => None,
        Some(variant) => Some(collation_type(base, variant)?),
    };
    preferences.case_first = Some(match spec.case_first {
        CaseFirst::Off => CollationCaseFirst::False,
        CaseFirst::Upper => CollationCaseFirst::Upper,
        CaseFirst::Lower => CollationCaseFirst::Lower,
    });
    preferences.numeric_ordering = Some(if spec.numeric_ordering {
        CollationNumericOrdering::True
    } else {
        CollationNumericOrdering::False
    });
    Some(preferences)
}

/// The newer name of an order; `None` if there are no data for any locale.
fn collation_type(base: &str, variant: &str) -> Option<CollationType> {
    Some(match (base, variant) {
        (_, "compat") => CollationType::Compat,
        (_, "dictionary") => CollationType::Dict,
        (_, "emoji") => CollationType::Emoji,
        (_, "eor") => CollationType::Eor,
        (_, "phonebook") => CollationType::Phonebk,
        (_, "pinyin") => CollationType::Pinyin,
        (_, "stroke") => CollationType::Stroke,
        // Swedish has been reformed since: what was its standard is its tradition.
        (_, "traditional") | ("sv", "standard") => CollationType::Trad,
        (_, "unihan") => CollationType::Unihan,
        (_, "zhuyin") => CollationType::Zhuyin,
        _ => return None,
    })
}

fn has_data(preferences: &CollatorPreferences) -> bool {
    let attributes = preferences
        .collation_type
        .as_ref()
        .map(|kind| DataMarkerAttributes::from_str_or_panic(kind.as_str()))
        .unwrap_or_default();
    let data_locale = CollationTailoringV1::make_locale(preferences.locale_preferences);
    let mut metadata = DataRequestMetadata::default();
    metadata.silent = true;
    let request = DataRequest {
        id: DataIdentifierBorrowed::for_marker_attributes_and_locale(attributes, &data_locale),
        metadata,
    };
    DataProvider::<CollationMetadataV1>::load(&Baked, request).is_ok()
}

/// The usual data, but for which accent difference counts: the first, or the last of a text.
struct Turned {
    backwards: bool,
}

impl Turned {
    /// A bit of the data's own format.
    const BACKWARD_SECOND_LEVEL: u32 = 1 << 7;
}

impl DataProvider<CollationMetadataV1> for Turned {
    fn load(&self, request: DataRequest) -> Result<DataResponse<CollationMetadataV1>, DataError> {
        let response = DataProvider::<CollationMetadataV1>::load(&Baked, request)?;
        let mut bits = response.payload.get().bits & !Turned::BACKWARD_SECOND_LEVEL;
        if self.backwards {
            bits |= Turned::BACKWARD_SECOND_LEVEL;
        }
        Ok(DataResponse {
            payload: DataPayload::from_owned(CollationMetadata { bits }),
            metadata: response.metadata,
        })
    }
}

macro_rules! unchanged {
    ($data:ident: $($marker:ident),*) => {
        $(impl DataProvider<$marker> for Turned {
            fn load(&self, request: DataRequest) -> Result<DataResponse<$marker>, DataError> {
                $data.load(request)
            }
        })*
    };
}

unchanged!(Baked: CollationSpecialPrimariesV1, CollationRootV1, CollationTailoringV1, CollationDiacriticsV1,
    CollationJamoV1, CollationReorderingV1);
unchanged!(NormalizerData: NormalizerNfdDataV1, NormalizerNfdTablesV1);
