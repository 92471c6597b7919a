//! The names of expressions, so that a misspelt one is told from one that is yet to come.

use kilim_error::{Error, Result};

/// In byte order, without their dollar.
#[rustfmt::skip]
const NAMES: &[&str] = &[
    "abs", "acos", "acosh", "add", "allElementsTrue", "and", "anyElementTrue", "arrayElemAt",
    "arrayToObject", "asin", "asinh", "atan", "atan2", "atanh", "avg", "binarySize", "bsonSize",
    "ceil", "cmp", "concat", "concatArrays", "cond", "const", "convert", "cos", "cosh", "dateAdd",
    "dateDiff", "dateFromParts", "dateFromString", "dateSubtract", "dateToParts", "dateToString",
    "dateTrunc", "dayOfMonth", "dayOfWeek", "dayOfYear", "degreesToRadians", "divide", "eq", "exp",
    "filter", "first", "firstN", "floor", "function", "getField", "gt", "gte", "hour", "ifNull",
    "in", "indexOfArray", "indexOfBytes", "indexOfCP", "isArray", "isNumber", "isoDayOfWeek",
    "isoWeek", "isoWeekYear", "last", "lastN", "let", "literal", "ln", "log", "log10", "lt", "lte",
    "ltrim", "map", "max", "maxN", "mergeObjects", "meta", "millisecond", "min", "minN", "minute",
    "mod", "month", "multiply", "ne", "not", "objectToArray", "or", "pow", "radiansToDegrees",
    "rand", "range", "reduce", "regexFind", "regexFindAll", "regexMatch", "replaceAll",
    "replaceOne", "reverseArray", "round", "rtrim", "second", "setDifference", "setEquals",
    "setField", "setIntersection", "setIsSubset", "setUnion", "sin", "sinh", "size", "slice",
    "sortArray", "split", "sqrt", "stdDevPop", "stdDevSamp", "strLenBytes", "strLenCP",
    "strcasecmp", "substr", "substrBytes", "substrCP", "subtract", "sum", "switch", "tan", "tanh",
    "toBool", "toDate", "toDecimal", "toDouble", "toHashedIndexKey", "toInt", "toLong", "toLower",
    "toObjectId", "toString", "toUpper", "trim", "trunc", "tsIncrement", "tsSecond", "type",
    "unsetField", "week", "year", "zip",
];

/// Refuses an operator that is no expression.
pub(super) fn check_expression_name(operator: &str) -> Result<()> {
    let name = operator.strip_prefix('$').unwrap_or(operator);
    match NAMES.binary_search(&name) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::location(31325, format!("Unknown expression {operator}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order() {
        assert!(NAMES.is_sorted());
    }
}
