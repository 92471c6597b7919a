//! `authenticationRestrictions`: from which addresses somebody may log in, and at which address of the server.

use std::net::IpAddr;

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};

/// A range of addresses, as it was written and as it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    text: String,
    address: IpAddr,
    bits: u8,
}

/// Both lists must hold; a list holds if one of its ranges does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restriction {
    client: Option<Vec<Range>>,
    server: Option<Vec<Range>>,
}

impl Restriction {
    /// `command` is how errors call the document that holds it.
    pub fn parse_list<'a>(
        values: impl IntoIterator<Item = RawValue<'a>>,
        command: &str,
    ) -> Result<Vec<Restriction>> {
        let field = format!("{command}.authenticationRestrictions");
        let parse = |value: RawValue<'a>| match value {
            RawValue::Document(document) => Restriction::parse(document, &field),
            other => Err(wrong_type(&field, other, "object")),
        };
        values.into_iter().map(parse).collect()
    }

    fn parse(document: RawDocument<'_>, field: &str) -> Result<Restriction> {
        let mut restriction = Restriction::default();
        for (name, value) in document.iter() {
            let into = match name {
                "clientSource" => &mut restriction.client,
                "serverAddress" => &mut restriction.server,
                _ => {
                    return Err(Error::location(
                        40415,
                        format!("BSON field '{field}.{name}' is an unknown field."),
                    ));
                }
            };
            let name = format!("{field}.{name}");
            let ranges = value.as_array().ok_or_else(|| wrong_type(&name, value, "array"))?;
            let range = |value: RawValue<'_>| match value {
                RawValue::String(text) => Range::parse(text),
                other => Err(wrong_type(&name, other, "string")),
            };
            *into = Some(ranges.iter().map(range).collect::<Result<_>>()?);
        }
        match restriction.client.is_none() && restriction.server.is_none() {
            true => Err(Error::user(
                ErrorCode::CollectionIsEmpty,
                "At least one of 'clientSource' or 'serverAddress' must be set",
            )),
            false => Ok(restriction),
        }
    }

    pub fn allows(&self, client: IpAddr, server: IpAddr) -> bool {
        let holds = |ranges: &Option<Vec<Range>>, address: IpAddr| {
            ranges.as_ref().is_none_or(|ranges| ranges.iter().any(|range| range.has(address)))
        };
        holds(&self.client, client.to_canonical()) && holds(&self.server, server.to_canonical())
    }

    pub fn list(restrictions: &[Restriction]) -> Value {
        let shown = |ranges: &[Range]| -> Value {
            Value::from(ranges.iter().map(|range| Value::from(&*range.text)).collect::<Vec<_>>())
        };
        let one = |restriction: &Restriction| {
            let mut document = Document::new();
            if let Some(ranges) = &restriction.client {
                document.push("clientSource", shown(ranges));
            }
            if let Some(ranges) = &restriction.server {
                document.push("serverAddress", shown(ranges));
            }
            Value::Document(document)
        };
        Value::from(restrictions.iter().map(one).collect::<Vec<_>>())
    }
}

impl Range {
    fn parse(text: &str) -> Result<Range> {
        let fault = |what: &str| Error::user(ErrorCode::BadValue, what.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| fault("Invalid IP address in CIDR string"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits.map(str::parse) {
            None => most,
            Some(Ok(bits)) if bits <= most => bits,
            Some(_) => return Err(fault("Invalid length in CIDR string")),
        };
        Ok(Range { text: text.to_owned(), address, bits })
    }

    fn has(&self, address: IpAddr) -> bool {
        let same = |one: u128, other: u128, width: u32| {
            let shift = width - u32::from(self.bits);
            // A shift by the whole width is none that the processor knows.
            one.checked_shr(shift).unwrap_or(0) == other.checked_shr(shift).unwrap_or(0)
        };
        match (self.address.to_canonical(), address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => same(u32::from(own).into(), u32::from(other).into(), 32),
            (IpAddr::V6(own), IpAddr::V6(other)) => same(own.into(), other.into(), 128),
            _ => false,
        }
    }
}

fn wrong_type(field: &str, value: RawValue<'_>, expected: &str) -> Error {
    let found = value.element_type().name();
    Error::user(
        ErrorCode::TypeMismatch,
        format!("BSON field '{field}' is the wrong type '{found}', expected type '{expected}'"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilim_bson::doc;

    #[test]
    fn ranges_hold_what_they_say() {
        let has = |range: &str, address: &str| Range::parse(range).unwrap().has(address.parse().unwrap());
        assert!(has("127.0.0.1", "127.0.0.1") && !has("127.0.0.1", "127.0.0.2"));
        assert!(has("10.0.0.0/8", "10.9.8.7") && !has("10.0.0.0/8", "11.0.0.0"));
        assert!(has("0.0.0.0/0", "8.8.8.8") && !has("0.0.0.0/0", "::1"));
        assert!(has("::/0", "::1") && has("fe80::/10", "febf::1") && !has("fe80::/10", "fec0::1"));
        assert!(Range::parse("bad").is_err() && Range::parse("1.2.3.4/33").is_err());
    }

    #[test]
    fn a_restriction_needs_both_addresses_right() {
        let list = doc! {"l": [{"clientSource": ["10.0.0.0/8"], "serverAddress": ["127.0.0.1"]}]};
        let values = list.get("l").and_then(RawValue::as_array).unwrap();
        let restrictions = Restriction::parse_list(values.iter(), "createUser").unwrap();
        let allows = |client: &str, server: &str| {
            restrictions[0].allows(client.parse().unwrap(), server.parse().unwrap())
        };
        assert!(allows("10.1.1.1", "127.0.0.1") && allows("::ffff:10.1.1.1", "127.0.0.1"));
        assert!(!allows("11.1.1.1", "127.0.0.1") && !allows("10.1.1.1", "127.0.0.2"));
        let shown = doc! {"l": Restriction::list(&restrictions)};
        assert_eq!(shown.as_bytes(), list.as_bytes());
    }
}
