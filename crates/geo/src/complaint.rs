//! What is wrong with a geometry, in words that quote it.
//!
//! How values are printed in messages is for others to say: a complaint is made of parts, which [`Complaint::text`] puts
//! together.

use std::borrow::Cow;

use kilim_bson::RawValue;

#[derive(Debug, Clone)]
pub struct Complaint<'a>(Vec<Part<'a>>);

#[derive(Debug, Clone)]
pub enum Part<'a> {
    Text(Cow<'static, str>),
    Value(RawValue<'a>),
    Number(f64),
}

impl<'a> Complaint<'a> {
    pub fn new(text: impl Into<Cow<'static, str>>) -> Complaint<'a> {
        Complaint(vec![Part::Text(text.into())])
    }

    /// Words, and the value they are about.
    pub fn about(text: impl Into<Cow<'static, str>>, value: RawValue<'a>) -> Complaint<'a> {
        Complaint::new(text).value(value)
    }

    pub fn with(mut self, text: impl Into<Cow<'static, str>>) -> Complaint<'a> {
        self.0.push(Part::Text(text.into()));
        self
    }

    pub fn value(mut self, value: RawValue<'a>) -> Complaint<'a> {
        self.0.push(Part::Value(value));
        self
    }

    pub fn number(mut self, number: f64) -> Complaint<'a> {
        self.0.push(Part::Number(number));
        self
    }

    /// The whole message, given how values and numbers are printed.
    pub fn text(&self, print: impl Fn(RawValue<'_>) -> String, number: impl Fn(f64) -> String) -> String {
        self.0
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.to_string(),
                Part::Value(value) => print(*value),
                Part::Number(given) => number(*given),
            })
            .collect()
    }
}
