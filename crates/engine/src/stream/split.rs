//! `$changeStreamSplitLargeEvent`: an event that is too large for a message comes in fragments.
//!
//! Fields stay whole. They are put into fragments from the smallest to the largest, as many into each as fit, as MongoDB 7.0
//! does; each fragment has the token of its event and its own number in it, so that a stream can be resumed between two.

use kilim_bson::{Document, RawValue, Writer, doc};
use kilim_error::{Error, ErrorCode, Result};

use crate::change_log::Token;
use crate::limits;

/// What an event or a fragment of one may take: half of the slack is left for the reply around it.
const BYTES_MAX: usize = limits::DOCUMENT_BYTES_MAX + limits::DOCUMENT_BYTES_SLACK / 2;

/// The fragments of an event behind those that have been seen, and the token of the last; the event itself if it is small
/// enough.
pub(super) fn fragments(event: Document, token: Token, seen: Option<u32>) -> Result<(Vec<Document>, Token)> {
    if event.as_bytes().len() <= BYTES_MAX {
        return match seen {
            None => Ok((vec![event], token)),
            Some(_) => Err(fatal(
                "Attempted to resume from a split event fragment, but the event in the resumed stream was not large \
                 enough to be split",
            )),
        };
    }
    let seen = seen.unwrap_or(0) as usize;
    let groups = groups(&event, BYTES_MAX)?;
    if seen > groups.len() {
        return Err(fatal(
            "Attempted to resume from a split event, but the resumed stream produced a different split. Ensure that the \
             pipeline used to resume is the same as the original",
        ));
    }
    let of = groups.len() as i32;
    let fragment = |(at, fields): (usize, &Vec<(&str, RawValue<'_>)>)| {
        let mut writer = Writer::with_capacity(512);
        writer.append("_id", RawValue::Document(token.of_fragment(at as u32).to_document().as_raw()));
        let place = doc! {"fragment": at as i32 + 1, "of": of};
        writer.append("splitEvent", RawValue::Document(place.as_raw()));
        fields.iter().for_each(|(name, value)| writer.append(name, *value));
        writer.finish()
    };
    let fragments = groups.iter().enumerate().skip(seen).map(fragment).collect();
    Ok((fragments, token.of_fragment(groups.len() as u32 - 1)))
}

type Fields<'e> = Vec<(&'e str, RawValue<'e>)>;

/// The fields of an event in groups that fit into a document of so many bytes.
fn groups(event: &Document, bytes_max: usize) -> Result<Vec<Fields<'_>>> {
    // What each fragment has beside the fields: its token, which is at most a number longer, and its place.
    let token = event.get("_id").map_or(0, |token| bytes_of("_id", token));
    let room = bytes_max.saturating_sub(token + 128);
    let fields = event.as_raw().iter().filter(|(name, _)| *name != "_id");
    let mut fields: Vec<(usize, &str, RawValue<'_>)> =
        fields.map(|(name, value)| (bytes_of(name, value), name, value)).collect();
    fields.sort_by_key(|(bytes, name, _)| (*bytes, *name));
    let (mut groups, mut bytes): (Vec<Fields<'_>>, usize) = (vec![Vec::new()], 0);
    for (size, name, value) in fields {
        if size > room {
            return Err(Error::location(
                7182500,
                format!(
                    "Splitting change event failed: the field '{name}' alone is larger than a fragment may be"
                ),
            ));
        }
        if bytes + size > room {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        groups.last_mut().into_iter().for_each(|group| group.push((name, value)));
    }
    Ok(groups)
}

fn bytes_of(name: &str, value: RawValue<'_>) -> usize {
    let mut alone = Document::new();
    alone.push(name, value);
    alone.as_bytes().len()
}

fn fatal(message: &str) -> Error {
    Error::user(ErrorCode::ChangeStreamFatalError, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_grouped_from_the_smallest_to_the_largest() {
        let text = |length: usize| "x".repeat(length);
        let event = doc! {"_id": "token", "c": text(700), "a": text(10), "d": text(750), "b": text(20)};
        let groups = groups(&event, 1000).unwrap();
        let names: Vec<Vec<&str>> =
            groups.iter().map(|group| group.iter().map(|(name, _)| *name).collect()).collect();
        assert_eq!(names, [vec!["a", "b", "c"], vec!["d"]]);
    }

    #[test]
    fn a_field_that_no_fragment_can_hold_is_refused() {
        let event = doc! {"_id": "token", "a": "x".repeat(2000)};
        assert_eq!(groups(&event, 1000).unwrap_err().code().0, 7182500);
    }
}
