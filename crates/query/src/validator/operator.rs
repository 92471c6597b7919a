//! What is said of an operator on a field that failed, or held where it should not.

/// How one operator tells of itself.
pub(super) struct Telling {
    /// It did not hold.
    pub failed: &'static str,
    /// It held.
    pub held: &'static str,
    /// It looks at arrays as a whole.
    pub whole: bool,
    /// It can only hold for values of these types.
    pub expected: &'static [&'static str],
    /// The types of values are told too.
    pub types: bool,
}

const COMPARISON: Telling = Telling {
    failed: "comparison failed",
    held: "comparison succeeded",
    whole: false,
    expected: &[],
    types: false,
};
const MEMBERSHIP: Telling = Telling {
    failed: "no matching value found in array",
    held: "matching value found in array",
    ..COMPARISON
};
const ARRAY: Telling = Telling { whole: true, expected: &["array"], ..COMPARISON };

/// `$ne` and `$nin` are told as the opposite of what they negate.
pub(super) fn telling(operator: &str) -> Telling {
    match operator {
        "$ne" => Telling { failed: COMPARISON.held, held: COMPARISON.failed, ..COMPARISON },
        "$in" => MEMBERSHIP,
        "$nin" => Telling { failed: MEMBERSHIP.held, held: MEMBERSHIP.failed, ..COMPARISON },
        "$type" => {
            Telling { failed: "type did not match", held: "type did match", types: true, ..COMPARISON }
        }
        "$mod" => Telling {
            failed: "$mod did not evaluate to expected remainder",
            held: "$mod did evaluate to expected remainder",
            expected: &["decimal", "double", "int", "long"],
            ..COMPARISON
        },
        "$regex" => Telling {
            failed: "regular expression did not match",
            held: "regular expression did match",
            expected: &["regex", "string", "symbol"],
            ..COMPARISON
        },
        "$size" => Telling {
            failed: "array length was not equal to given size",
            held: "array length was equal to given size",
            ..ARRAY
        },
        "$elemMatch" => Telling {
            failed: "array did not satisfy the child predicate",
            held: "array did satisfy the child predicate",
            ..ARRAY
        },
        "$all" => Telling {
            failed: "array did not contain all specified values",
            held: "array did contain all specified values",
            whole: true,
            ..COMPARISON
        },
        "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear" => Telling {
            failed: "bitwise operator failed to match",
            held: "bitwise operator matched successfully",
            expected: &["binData", "decimal", "double", "int", "long"],
            ..COMPARISON
        },
        _ => COMPARISON,
    }
}
