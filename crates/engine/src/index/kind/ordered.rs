//! The ordinary kind: the key holds the values at its paths, in the order of values.
//!
//! Most documents have one key: the value at each path, null where there is none. A path that meets an
//! array fans out: one key per element, all other values repeated. Arrays within arrays fan out
//! again only along the path. An empty array at the end of a path is undefined, to be told from null.
//! A numeric component may name an array position; then the array does not fan out for that path.
//! Two paths may not fan out over different arrays: the keys would be their product. An index that patterns made holds
//! that product, because a pattern's index may not make a write fail ([`push_product`]).

use kilim_bson::{Path, RawArray, RawDocument, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Predicate;
use kilim_query::text::document as shell_text;

use super::{IndexSpec, KeySet, Kind, Multikey};
use crate::bounds::{Bounds, PartTraits, Tightness, bounds_of};
use crate::index::keys::{decode_entry_key, follow_value, keys_of};
use crate::limits::PRODUCT_KEYS_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ordered;

impl Kind for Ordered {
    fn is_kind_of(_key: RawDocument<'_>) -> bool {
        true
    }

    fn of(_key: RawDocument<'_>, _projection: Option<RawDocument<'_>>) -> Ordered {
        Ordered
    }

    fn add_keys(&self, spec: &IndexSpec, document: RawDocument<'_>, out: &mut KeySet) -> Result<Multikey> {
        if out.push_straight(spec, document)? {
            return Ok(Multikey::default());
        }
        let fields: Vec<Field<'_>> =
            vec![Field { next: 0, value: RawValue::Null, positional: None }; spec.key.len()];
        let mut fan_out = FanOut { spec, out, multikey: Multikey::default() };
        let multikey = match fan_out.expand(fields, document, 0) {
            Ok(()) => fan_out.multikey,
            Err(error) if spec.is_made_for_patterns() && is_about_arrays(&error) => {
                out.clear();
                push_product(spec, document, out)?
            }
            Err(error) => return Err(error),
        };
        out.sort()?;
        Ok(multikey)
    }
}

fn is_about_arrays(error: &Error) -> bool {
    error.code() == ErrorCode::CannotIndexParallelArrays
}

/// The keys of a document whose paths fan out over different arrays: every value of each part with every value of the
/// others.
///
/// Beyond [`PRODUCT_KEYS_MAX`] keys, each value of the first part has one key, whose other parts hold any of their values.
/// The index then tells of its first part only ([`Multikey::is_of_first_part_only`]), by which a group's children are
/// found.
fn push_product(spec: &IndexSpec, document: RawDocument<'_>, out: &mut KeySet) -> Result<Multikey> {
    let mut bits = vec![0; spec.key.len()];
    let mut parts: Vec<Vec<Value>> = Vec::with_capacity(spec.key.len());
    for (at, part) in spec.key.iter().enumerate() {
        let alone = IndexSpec { key: vec![part.clone()], ..spec.clone() };
        let mut keys = KeySet::default();
        bits[at] = keys_of(&alone, document, &mut keys)?.array_bits(0);
        let values = keys.iter().map(|(key, types)| decode_entry_key(&alone, key, types).swap_remove(0));
        parts.push(values.collect());
    }
    let mut multikey = Multikey::default().with_bits(bits);
    let product = parts.iter().try_fold(1usize, |product, values| product.checked_mul(values.len()));
    if product.is_none_or(|product| product > PRODUCT_KEYS_MAX) {
        multikey.note_first_part_only();
        parts.iter_mut().skip(1).for_each(|values| values.truncate(1));
    }
    let mut chosen = vec![0; parts.len()];
    loop {
        let values = parts.iter().zip(&chosen).map(|(values, at)| values[*at].as_raw());
        out.push(spec, values)?;
        // The next combination, as a counter goes on.
        let mut at = parts.len();
        loop {
            let Some(part) = at.checked_sub(1) else { return Ok(multikey) };
            at = part;
            chosen[part] += 1;
            if chosen[part] < parts[part].len() {
                break;
            }
            chosen[part] = 0;
        }
    }
}

/// The bounds over a part that holds the values at a path.
pub(super) fn value_bounds(path: &Path, predicate: &Predicate, traits: PartTraits<'_>) -> Option<Bounds> {
    let mut bounds = bounds_of(predicate, traits)?;
    // A number in a path is a field name or an array position, and keys are made for both.
    if path.components().iter().any(|component| component.index.is_some()) {
        // What a position holds may be missing in one reading and there in the other.
        let whole = matches!(predicate, Predicate::Not(_) | Predicate::Expr(..));
        if bounds.tightness == Tightness::InexactFetch || whole {
            return None;
        }
        bounds.tightness = Tightness::InexactFetch;
    }
    Some(bounds)
}

struct FanOut<'s, 'o> {
    spec: &'s IndexSpec,
    out: &'o mut KeySet,
    multikey: Multikey,
}

/// How far a key part has come along its path.
#[derive(Clone, Copy)]
struct Field<'a> {
    /// The component to look up next; the path's length when `value` is settled.
    next: usize,
    value: RawValue<'a>,
    /// Set where the next component is a position in the array being fanned out.
    positional: Option<Positional<'a>>,
}

/// An array element addressed by number, and what the path leads to from there.
#[derive(Clone, Copy)]
struct Positional<'a> {
    array: RawArray<'a>,
    element: RawValue<'a>,
    found: Option<RawValue<'a>>,
    next: usize,
}

impl FanOut<'_, '_> {
    /// Follows every unsettled field from `object` on, to its end or to an array, and fans out over
    /// that array. `missing` counts the fields found absent so far.
    ///
    /// Recursion is bounded by the components of the longest path.
    fn expand<'a>(
        &mut self,
        mut fields: Vec<Field<'a>>,
        object: RawDocument<'a>,
        mut missing: usize,
    ) -> Result<()> {
        let spec = self.spec;
        let mut array: Option<(RawArray<'a>, &str)> = None;
        let mut met_array = vec![false; fields.len()];
        // A position that holds an array is indexed by that array whole.
        let mut whole = false;
        for ((part, field), met_array) in spec.key.iter().zip(&mut fields).zip(&mut met_array) {
            let components = part.path.components();
            if field.next == components.len() {
                continue;
            }
            let (found, nested) = field.follow(object, &part.path)?;
            match found {
                None => {
                    field.next = components.len();
                    field.value = RawValue::Null;
                    missing += 1;
                }
                Some(RawValue::Array(found)) => {
                    let name = &*components[field.next - 1].name;
                    match array {
                        None => array = Some((found, name)),
                        Some((first, first_name)) => {
                            // The same array, not an equal one.
                            if !std::ptr::eq(first.as_bytes(), found.as_bytes()) {
                                return Err(Error::user(
                                    ErrorCode::CannotIndexParallelArrays,
                                    format!("cannot index parallel arrays [{name}] [{first_name}]"),
                                ));
                            }
                        }
                    }
                    *met_array = true;
                    whole |= nested;
                }
                Some(value) => {
                    field.next = components.len();
                    field.value = value;
                }
            }
        }
        let Some((array, _)) = array else {
            if !(spec.sparse && missing == fields.len()) {
                self.out.push(spec, fields.iter().map(|field| field.value))?;
            }
            return Ok(());
        };

        let mut terminal = vec![false; fields.len()];
        for (at, (part, field)) in spec.key.iter().zip(&mut fields).enumerate() {
            if !met_array[at] {
                continue;
            }
            let components = part.path.components();
            terminal[at] = field.next == components.len();
            if terminal[at] {
                if !whole {
                    self.met_array(at, field.next - 1);
                }
                continue;
            }
            let element = components[field.next].index.and_then(|index| array.get(index));
            field.positional = element.map(|element| {
                let (found, next) = follow_value(element, &part.path, field.next + 1);
                Positional { array, element, found, next }
            });
            // An empty array at a named position gives one key, and mongod does not count it.
            if field.positional.is_none() && !(whole && array.is_empty()) {
                self.met_array(at, field.next - 1);
            }
        }
        if array.is_empty() {
            return self.expand_element(
                &fields,
                &terminal,
                RawValue::Undefined,
                RawValue::Undefined,
                missing,
            );
        }
        for element in array.iter() {
            let settled = if whole { RawValue::Array(array) } else { element };
            self.expand_element(&fields, &terminal, settled, element, missing)?;
        }
        Ok(())
    }

    /// Goes on in one element of an array; paths that end at the array are settled.
    fn expand_element<'a>(
        &mut self,
        fields: &[Field<'a>],
        terminal: &[bool],
        settled: RawValue<'a>,
        element: RawValue<'a>,
        missing: usize,
    ) -> Result<()> {
        let mut fields = fields.to_vec();
        for (field, &terminal) in fields.iter_mut().zip(terminal) {
            if terminal {
                field.value = settled;
            }
        }
        self.expand(fields, element.as_document().unwrap_or(RawDocument::empty()), missing)
    }

    fn met_array(&mut self, part: usize, component: usize) {
        let bits = &mut self.multikey.bits;
        bits.resize(self.spec.key.len(), 0);
        bits[part] |= Multikey::bit_of(component);
    }
}

impl<'a> Field<'a> {
    /// Looks the rest of the path up, as far as the next array. Also tells whether a position named
    /// in the path holds an array itself.
    fn follow(&mut self, object: RawDocument<'a>, path: &Path) -> Result<(Option<RawValue<'a>>, bool)> {
        let positional = self.positional.take();
        let in_object = object.get(&path.components()[self.next].name);
        match (in_object, positional) {
            (Some(_), Some(positional)) => Err(Error::location(
                16746,
                format!(
                    "Ambiguous field name found in array (do not use numeric field names in embedded \
                     elements in an array), field: '{}' for array: {}",
                    path.components()[self.next].name,
                    shell_text(positional.array.as_document())
                ),
            )),
            (Some(value), None) => {
                let (found, next) = follow_value(value, path, self.next + 1);
                self.next = next;
                Ok((found, false))
            }
            (None, Some(positional)) => {
                self.next = positional.next;
                let nested = matches!(positional.element, RawValue::Array(_));
                Ok((positional.found, nested))
            }
            (None, None) => Ok((None, false)),
        }
    }
}
