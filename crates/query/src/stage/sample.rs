//! `$sample`: some documents, chosen at random.

use kilim_bson::{Document, RawValue, doc};
use kilim_error::{Error, Result};

use super::{Behaviour, Beyond, Context, Stage};
use crate::expression::Dependencies;
use crate::filter::number;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub size: u64,
}

pub(super) fn parse(_: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let RawValue::Document(spec) = value else {
        return Err(Error::location(28745, "the $sample stage specification must be an object"));
    };
    let mut size = None;
    for (name, value) in spec.iter() {
        if name != "size" {
            return Err(Error::location(28748, format!("unrecognized option to $sample: {name}")));
        }
        let number = number::rounded_i64(value)
            .ok_or_else(|| Error::location(28746, "size argument to $sample must be a number"))?;
        let number = number.unwrap_or(match number::to_f64(value) {
            positive if positive > 0.0 => i64::MAX,
            negative if negative < 0.0 => i64::MIN,
            _ => 0,
        });
        size = Some(
            u64::try_from(number)
                .map_err(|_| Error::location(28747, "size argument to $sample must not be negative"))?,
        );
    }
    let size = size.ok_or_else(|| Error::location(28749, "$sample stage must specify a size"))?;
    out.push(Stage::Sample(Sample { size }));
    Ok(())
}

impl Behaviour for Sample {
    fn to_document(&self) -> Document {
        doc! {"$sample": {"size": self.size as i64}}
    }

    fn dependencies(&self, _: &mut Dependencies) -> Beyond {
        Beyond::Later
    }
}
