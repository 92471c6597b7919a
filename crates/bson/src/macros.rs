//! `doc!` and `array!`: documents written as they look.

/// Builds a [`crate::Document`]: `doc! {"ok": 1.0, "nested": {"list": [1, 2]}}`.
#[macro_export]
macro_rules! doc {
    ($($tokens:tt)*) => {{
        #[allow(unused_mut)]
        let mut document = $crate::Document::new();
        $crate::doc_fields!(document, $($tokens)*);
        document
    }};
}

/// Builds a [`crate::Array`]: `array![1, "two", {"three": 3}]`.
#[macro_export]
macro_rules! array {
    ($($tokens:tt)*) => {{
        #[allow(unused_mut)]
        let mut values = $crate::ArrayBuilder::new();
        $crate::array_values!(values, $($tokens)*);
        values.finish()
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! doc_fields {
    ($document:ident $(,)?) => {};
    ($document:ident, $name:tt : {$($value:tt)*} $(, $($rest:tt)*)?) => {
        $document.push($name, $crate::doc! {$($value)*});
        $crate::doc_fields!($document, $($($rest)*)?);
    };
    ($document:ident, $name:tt : [$($value:tt)*] $(, $($rest:tt)*)?) => {
        $document.push($name, $crate::array! [$($value)*]);
        $crate::doc_fields!($document, $($($rest)*)?);
    };
    ($document:ident, $name:tt : null $(, $($rest:tt)*)?) => {
        $document.push($name, $crate::Value::Null);
        $crate::doc_fields!($document, $($($rest)*)?);
    };
    ($document:ident, $name:tt : $value:expr $(, $($rest:tt)*)?) => {
        $document.push($name, $value);
        $crate::doc_fields!($document, $($($rest)*)?);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! array_values {
    ($values:ident $(,)?) => {};
    ($values:ident, {$($value:tt)*} $(, $($rest:tt)*)?) => {
        $values.push($crate::Value::Document($crate::doc! {$($value)*}));
        $crate::array_values!($values, $($($rest)*)?);
    };
    ($values:ident, [$($value:tt)*] $(, $($rest:tt)*)?) => {
        $values.push($crate::Value::Array($crate::array! [$($value)*]));
        $crate::array_values!($values, $($($rest)*)?);
    };
    ($values:ident, null $(, $($rest:tt)*)?) => {
        $values.push($crate::Value::Null);
        $crate::array_values!($values, $($($rest)*)?);
    };
    ($values:ident, $value:expr $(, $($rest:tt)*)?) => {
        $values.push($crate::Value::from($value));
        $crate::array_values!($values, $($($rest)*)?);
    };
}
