//! How much of an array that continues in pages a request needs.

use kilim_patterns::{Paging, overlap};
use kilim_query::expression::Dependencies;
use kilim_query::stage::Beyond;

use crate::plan::{Purpose, ReadRequest};
use crate::records::{View, is_needed};

/// Decides how much of the array is read. A `$slice` is then done by the reader, and is taken out of the projection.
pub(super) fn ask(paging: &Paging, request: &mut ReadRequest) {
    let field = &*paging.field;
    let sorts =
        (request.sort.iter()).any(|sort| sort.parts().iter().any(|part| overlap(part.user_path(), field)));
    if sorts {
        request.array = View::Whole;
        return;
    }
    if request.array != View::Asked || request.purpose == Purpose::Count {
        request.array = View::Stored;
        return;
    }
    if let Some(distinct) = &request.distinct {
        request.array = if overlap(&distinct.path, field) { View::Whole } else { View::Stored };
        return;
    }
    request.array = match &request.projection {
        Some(projection) if projection.seeks_in(field) => View::Whole,
        Some(projection) => match projection.slice_of(field) {
            // What is computed is computed from all of it.
            Some(_) if projection.computes_from(&|needed| is_needed(needed, field)) => View::Whole,
            Some(slice) => {
                let projection = projection.with_slice_done(field);
                request.projection = Some(projection);
                View::Slice(slice)
            }
            None if paging.whole => {
                let mut needed = Dependencies::default();
                let beyond = projection.dependencies(&mut needed);
                match is_needed(&needed, field) || beyond == Beyond::Later {
                    true => View::Whole,
                    false => View::Stored,
                }
            }
            None => View::Stored,
        },
        None if paging.whole => View::Whole,
        None => View::Stored,
    };
}
