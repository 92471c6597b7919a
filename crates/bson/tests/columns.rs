//! Compressed columns as a mongod wrote them, beside the values that it read from them (`columns/record.py`).

use kilim_bson::{Document, RawDocument, RawValue, Scalars, Writer, decode_column};

const BYTES_MAX: usize = 32 * 1024 * 1024;

/// `KILIM_COLUMNS` names another recording.
#[test]
fn columns_of_mongod_have_the_values_that_mongod_reads() {
    let recorded = match std::env::var_os("KILIM_COLUMNS") {
        Some(path) => std::fs::read(path).unwrap(),
        None => include_bytes!("columns/recorded.bson").to_vec(),
    };
    let (mut rest, mut columns, mut values, mut in_place) = (&recorded[..], 0, 0, 0);
    while !rest.is_empty() {
        let (pair, behind) = RawDocument::parse_prefix(rest).unwrap();
        rest = behind;
        let (column, expected) = of_pair(pair);
        let decoded = decode_column(column, BYTES_MAX).unwrap_or_else(|bad| panic!("{bad}: {column:02x?}"));
        assert_eq!(decoded.as_raw(), expected, "{column:02x?}");
        if let Some(values) = read_in_place(column) {
            assert_eq!(values.as_raw(), expected, "{column:02x?}");
            in_place += 1;
        }
        columns += 1;
        values += expected.iter().count();
    }
    println!("{columns} columns, {in_place} of them read in place, {values} values");
    assert!(columns > 100 && in_place > 20 && values > 10_000);
}

#[test]
fn a_column_that_is_cut_or_changed_is_refused_or_gives_other_values() {
    let recorded = include_bytes!("columns/recorded.bson");
    let mut rest = &recorded[..];
    let mut refused = 0;
    while !rest.is_empty() {
        let (pair, behind) = RawDocument::parse_prefix(rest).unwrap();
        rest = behind;
        let (column, _) = of_pair(pair);
        for at in (0..column.len()).step_by(1 + column.len() / 40) {
            assert!(decode_column(&column[..at], BYTES_MAX).is_err());
            assert!(Scalars::of(&column[..at]).is_none());
            let mut changed = column.to_vec();
            changed[at] ^= 1 << (at % 8);
            if let Some(values) = read_in_place(&changed) {
                assert_eq!(decode_column(&changed, BYTES_MAX).unwrap(), values, "{changed:02x?}");
            }
            match decode_column(&changed, 1 << 16) {
                Ok(decoded) => drop(Document::parse(decoded.into_bytes()).unwrap()),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn what_repeats_without_end_is_bounded() {
    // An int, then two blocks of 1,920 repetitions each.
    let mut column = vec![0x10, 0, 1, 0, 0, 0, 0x81];
    column.extend_from_slice(&[0xFF, 0, 0, 0, 0, 0, 0, 0]);
    column.extend_from_slice(&[0xFF, 0, 0, 0, 0, 0, 0, 0]);
    column.push(0);
    assert_eq!(decode_column(&column, BYTES_MAX).unwrap().iter().count(), 1 + 2 * 1920);
    assert!(decode_column(&column, 1000).is_err());
}

fn read_in_place(column: &[u8]) -> Option<Document> {
    let mut scalars = Scalars::of(column)?;
    let mut values = Writer::new();
    for number in 0.. {
        let Some(value) = scalars.next() else { break };
        value.into_iter().for_each(|value| values.append_index(number, value));
    }
    Some(values.finish())
}

fn of_pair(pair: RawDocument<'_>) -> (&[u8], RawDocument<'_>) {
    match (pair.get("column"), pair.get("values")) {
        (Some(RawValue::Binary { bytes, .. }), Some(RawValue::Document(values))) => (bytes, values),
        _ => panic!("no pair of a column and its values"),
    }
}
