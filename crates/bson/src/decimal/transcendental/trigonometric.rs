//! Sines, cosines, tangents and their inverses.

use super::angle::reduce;
use super::convert::{from_quad, to_quad};
use super::elementary::{self, PI, half_pi};
use super::wide::Wide;
use super::{LOWEST_ZERO, MINUS_ONE, TINY, finite_parts, is_tiny, just_above, just_below, quiet, with_sign};
use crate::decimal::Decimal128;

/// Exponents from here on go through [`reduce`]; numbers with lower ones are angles of at most a tenth.
const REDUCED_FROM: i32 = -35;
/// Numbers with exponents below are below 10⁻¹⁸.
const SMALL_BELOW: i32 = -52;

/// An angle, for the functions to go on with.
enum Angle {
    NotThere,
    Small,
    /// Within a tenth, as a binary128.
    Plain(Wide),
    /// Within an eighth of a turn from a quadrant's beginning.
    Reduced {
        quadrant: u32,
        rest: Wide,
    },
}

fn angle(value: Decimal128) -> Angle {
    let Some((negative, coefficient, exponent)) = finite_parts(value) else { return Angle::NotThere };
    if coefficient == 0 || exponent < SMALL_BELOW {
        return Angle::Small;
    }
    if exponent < REDUCED_FROM {
        return Angle::Plain(to_quad(value));
    }
    let (quadrant, rest) = reduce(coefficient, exponent);
    let (quadrant, rest) = if negative { ((4 - quadrant) % 4, rest.negate()) } else { (quadrant, rest) };
    Angle::Reduced { quadrant, rest: rest.multiply(half_pi().to_quad()).to_quad() }
}

fn sign_if(negative: bool, value: Wide) -> Wide {
    if negative { value.negate() } else { value }
}

impl Decimal128 {
    /// NaN for infinities, as the cosine and the tangent.
    pub fn sin(self) -> Decimal128 {
        match angle(self) {
            Angle::NotThere => self.no_angle(),
            Angle::Small if self.is_zero() => self,
            Angle::Small => just_below(self),
            Angle::Plain(angle) => from_quad(elementary::sin(angle).to_quad()),
            Angle::Reduced { quadrant, rest } => {
                let sine = if quadrant % 2 == 0 { elementary::sin(rest) } else { elementary::cos(rest) };
                from_quad(sign_if(quadrant >= 2, sine.to_quad()))
            }
        }
    }

    pub fn cos(self) -> Decimal128 {
        match angle(self) {
            Angle::NotThere => self.no_angle(),
            Angle::Small => Decimal128::ONE.add(TINY),
            Angle::Plain(angle) => from_quad(elementary::cos(angle).to_quad()),
            Angle::Reduced { quadrant, rest } => {
                let cosine = if quadrant % 2 == 0 { elementary::cos(rest) } else { elementary::sin(rest) };
                from_quad(sign_if(quadrant == 1 || quadrant == 2, cosine.to_quad()))
            }
        }
    }

    pub fn tan(self) -> Decimal128 {
        match angle(self) {
            Angle::NotThere => self.no_angle(),
            Angle::Small => just_above(self),
            Angle::Plain(angle) => from_quad(elementary::tan(angle).to_quad()),
            Angle::Reduced { quadrant, rest } => {
                let tangent = elementary::tan(rest).to_quad();
                from_quad(if quadrant % 2 == 0 {
                    tangent
                } else {
                    Wide::one().negate().divide(tangent).to_quad()
                })
            }
        }
    }

    fn no_angle(self) -> Decimal128 {
        if self.is_nan() { quiet(self) } else { Decimal128::NAN }
    }

    /// NaN outside of minus one to one.
    pub fn asin(self) -> Decimal128 {
        if self.is_nan() {
            return quiet(self);
        }
        if is_tiny(self) {
            return just_above(self);
        }
        match self.within_one() {
            Within::Middle(sine) => from_quad(elementary::asin(sine).to_quad()),
            Within::Edge(cosine) => {
                with_sign(from_quad(elementary::acos(cosine).to_quad()), self.is_negative())
            }
            Within::Outside => Decimal128::NAN,
        }
    }

    pub fn acos(self) -> Decimal128 {
        if self.is_nan() {
            return quiet(self);
        }
        if is_tiny(self) {
            return Decimal128::HALF_PI;
        }
        if self.compare(Decimal128::ONE).is_eq() {
            return LOWEST_ZERO;
        }
        match self.within_one() {
            Within::Middle(cosine) => from_quad(elementary::acos(cosine).to_quad()),
            Within::Edge(sine) => {
                let angle = elementary::asin(sine).to_quad();
                from_quad(if self.is_negative() { PI.to_quad().subtract(angle).to_quad() } else { angle })
            }
            Within::Outside => Decimal128::NAN,
        }
    }

    fn within_one(self) -> Within {
        if self.abs().compare(Decimal128::ONE).is_gt() {
            return Within::Outside;
        }
        let quad = to_quad(self);
        let seven_tenths = to_quad(Decimal128::finite(false, 7, -1));
        if quad.abs().compare(&seven_tenths).is_le() {
            return Within::Middle(quad);
        }
        // Near the edges the other side of the triangle says more.
        let below_one = self.multiply_add(self, MINUS_ONE).negate();
        Within::Edge(to_quad(below_one).sqrt().to_quad())
    }

    pub fn atan(self) -> Decimal128 {
        if self.is_nan() {
            return quiet(self);
        }
        if self.is_infinite() {
            return with_sign(from_quad(half_pi().to_quad()), self.is_negative());
        }
        if self.is_zero() {
            return self;
        }
        if is_tiny(self) {
            return just_below(self);
        }
        from_quad(elementary::atan(to_quad(self)).to_quad())
    }

    /// The angle of a point whose y is this and whose x is given.
    pub fn atan2(self, x: Decimal128) -> Decimal128 {
        const QUARTER_PI: Decimal128 =
            Decimal128::finite(false, 785_398_163_397_448_309_615_660_845_819_876, -33);
        const THREE_QUARTERS_PI: Decimal128 =
            Decimal128::finite(false, 2_356_194_490_192_344_928_846_982_537_459_627, -33);
        const STEEP: Decimal128 = Decimal128::finite(false, 1, 36);
        const FLAT: Decimal128 = Decimal128::finite(false, 1, -36);
        if let Some(nan) = [self, x].into_iter().find(|value| value.is_nan()) {
            return quiet(nan);
        }
        let signed = |angle| with_sign(angle, self.is_negative());
        let along_axis = signed(if x.is_negative() { Decimal128::PI } else { LOWEST_ZERO });
        if self.is_infinite() {
            return signed(match (x.is_infinite(), x.is_negative()) {
                (true, true) => THREE_QUARTERS_PI,
                (true, false) => QUARTER_PI,
                (false, _) => Decimal128::HALF_PI,
            });
        }
        if self.is_zero() || x.is_infinite() {
            return along_axis;
        }
        if x.is_zero() {
            return signed(Decimal128::HALF_PI);
        }
        let slope = self.divide(x);
        let steepness = slope.abs();
        if steepness.compare(STEEP).is_gt() {
            return signed(Decimal128::HALF_PI);
        }
        if steepness.compare(FLAT).is_lt() {
            return if x.is_negative() { along_axis } else { slope };
        }
        let angle = from_quad(elementary::atan(to_quad(steepness)).to_quad());
        signed(if x.is_negative() { Decimal128::PI.subtract(angle) } else { angle })
    }
}

/// Where a sine or cosine stands.
enum Within {
    Middle(Wide),
    /// Near one, with the other side of the triangle.
    Edge(Wide),
    Outside,
}
