//! Results recorded from mongod, digit by digit.

use proptest::prelude::*;

use super::elementary;
use super::wide::Wide;
use crate::Decimal128;

fn decimal(text: &str) -> Decimal128 {
    Decimal128::parse(text).expect("a test's decimal is one")
}

fn check(name: &str, function: fn(Decimal128) -> Decimal128, cases: &[(&str, &str)]) {
    for (argument, expected) in cases {
        assert_eq!(function(decimal(argument)).to_string(), *expected, "{name}({argument})");
    }
}

#[test]
fn exponentials_and_logarithms_have_mongods_digits() {
    check(
        "exp",
        Decimal128::exp,
        &[
            ("0", "1"),
            ("1.50", "4.481689070338064822602055460119276"),
            ("-10", "0.00004539992976248485153559151556055061"),
            ("14149.38", "9.946180862600428374077334706894499E+6144"),
            ("-14000", "7.537951771629720907593006284141134E-6081"),
            ("-14220", "2E-6176"),
            ("1E+300", "Infinity"),
            ("-1E+300", "0E-6176"),
            ("-Infinity", "0"),
        ],
    );
    check(
        "ln",
        Decimal128::ln,
        &[
            ("1", "0"),
            ("0.9999999999999999999999999999999999", "-1.000000000000000000000000000000000E-34"),
            ("1.000000000000000000000000000000001", "9.999999999999999999999999999999996E-34"),
            ("1E-6176", "-14220.76553433122614449511522413063"),
            ("9.999999999999999999999999999999999E+6144", "14149.38539644841072829055748903542"),
            ("0", "-Infinity"),
            ("-1", "NaN"),
        ],
    );
    check("log10", Decimal128::log10, &[("0.001", "-3"), ("1E-30", "-30.00000000000000000000000000000000")]);
    check("log2", Decimal128::log2, &[("8", "3"), ("0.5", "-1")]);
}

#[test]
fn powers_have_mongods_digits() {
    let cases = [
        ("2", "10", "1024.000000000000000000000000000000"),
        ("1.10", "2", "1.210000000000000000000000000000001"),
        ("7", "34", "54116956037952111668959660849.00001"),
        ("-8", "3", "-512.0000000000000000000000000000000"),
        ("-8", "0.5", "NaN"),
        ("1E-100", "70", "0E-6176"),
        ("Infinity", "-2", "0E-6176"),
        ("NaN", "0", "1.000000000000000000000000000000000"),
        ("10", "5", "100000.0000000000000000000000000000"),
        ("10", "-12.6", "2.511886431509580111085032067799328E-13"),
        ("10", "7.68741", "48686662.00468625383404703164568277"),
        ("10", "-6176", "1E-6176"),
        ("2", "6", "64.00000000000000000000000000000000"),
        ("2", "3.26401", "9.606494006793255051148503376975981"),
        ("2", "-20500", "7.6752E-6172"),
        ("1.0000000001", "10000000000", "2.718281828323131143949794001297230"),
    ];
    for (base, exponent, expected) in cases {
        assert_eq!(decimal(base).power(decimal(exponent)).to_string(), expected, "{base}^{exponent}");
    }
}

#[test]
fn angles_have_mongods_digits() {
    check(
        "sin",
        Decimal128::sin,
        &[
            ("-0", "-0"),
            ("1E-10", "9.999999999999999999983333333333332E-11"),
            ("3.141592653589793238462643383279503", "-1.158028306006248941790250554076922E-34"),
            ("1E+10", "-0.4875060250875106915277942943481060"),
            ("Infinity", "NaN"),
        ],
    );
    check("cos", Decimal128::cos, &[("0", "1.000000000000000000000000000000000"), ("1E-33", "1")]);
    check("tan", Decimal128::tan, &[("0", "0E-40"), ("2", "-2.185039863261518991643306102313683")]);
    check("asin", Decimal128::asin, &[("-1", "-1.570796326794896619231321691639751"), ("2", "NaN")]);
    check(
        "acos",
        Decimal128::acos,
        &[("1", "0E-6176"), ("-0.76066781", "2.435137581652346843377989863588567")],
    );
    check("atan", Decimal128::atan, &[("-Infinity", "-1.570796326794896619231321691639751")]);
    assert_eq!(decimal("0").atan2(decimal("-2")).to_string(), Decimal128::PI.to_string());
}

#[test]
fn hyperbolic_functions_have_mongods_digits() {
    check("sinh", Decimal128::sinh, &[("10", "11013.23287470339337723652455484637"), ("1E+10", "Infinity")]);
    check("tanh", Decimal128::tanh, &[("-3.25", "-0.9969976354865260169322759264395723"), ("100", "1")]);
    check("asinh", Decimal128::asinh, &[("0", "0E-6176"), ("-5E-5153", "-0")]);
    check(
        "acosh",
        Decimal128::acosh,
        &[("1.000000000000000000000000000000001", "4.472135954999579392818347337462552E-17")],
    );
    check("atanh", Decimal128::atanh, &[("1", "Infinity"), ("-1.5", "NaN")]);
}

#[test]
fn roots_are_exact_where_they_can_be() {
    check(
        "sqrt",
        Decimal128::sqrt,
        &[
            ("-0", "-0"),
            ("100", "10"),
            ("1.50", "1.224744871391589049098642037352946"),
            ("1E-6176", "1E-3088"),
            ("9.999999999999999999999999999999999E+6144", "3.162277660168379331998893544432718E+3072"),
            ("-1", "NaN"),
        ],
    );
}

proptest! {
    #[test]
    fn no_decimal_panics(bytes: [u8; 16], other: [u8; 16]) {
        let (value, other) = (Decimal128::from_bytes(bytes), Decimal128::from_bytes(other));
        let functions = [
            Decimal128::sin, Decimal128::cos, Decimal128::tan, Decimal128::asin, Decimal128::acos,
            Decimal128::atan, Decimal128::sinh, Decimal128::cosh, Decimal128::tanh, Decimal128::asinh,
            Decimal128::acosh, Decimal128::atanh, Decimal128::exp, Decimal128::ln, Decimal128::log2,
            Decimal128::log10, Decimal128::sqrt,
        ];
        for function in functions {
            function(value);
        }
        value.power(other);
        value.atan2(other);
    }

    #[test]
    fn a_square_root_squared_is_the_number(coefficient in 1u64.., exponent in -50i32..50) {
        let value = decimal(&format!("{coefficient}E{exponent}"));
        let root = value.sqrt();
        let error = root.multiply(root).subtract(value).abs().divide(value);
        prop_assert!(error.compare(decimal("3E-33")).is_lt(), "{value}: {root}");
    }

    #[test]
    fn logarithms_undo_exponentials(value in -700.0f64..700.0) {
        let x = Wide::from_f64(value);
        let error = elementary::ln(elementary::exp(x)).subtract(x);
        prop_assert!(error.is_zero() || error.magnitude() < -220, "{value}");
    }

    #[test]
    fn quotients_multiplied_give_the_dividend(left in 1u128.., right in 1u128..) {
        let (left, right) = (Wide::from_u128(left), Wide::from_u128(right));
        let error = left.divide(right).multiply(right).subtract(left);
        prop_assert!(error.is_zero() || error.magnitude() < left.magnitude() - 245);
    }
}
