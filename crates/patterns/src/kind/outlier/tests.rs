use kilim_bson::{Document, RawValue, Value, doc};

use super::{Paging, elements_of, extended_page, page, page_len};

fn paging(limit: usize) -> Paging {
    Paging {
        field: "f".into(),
        limit,
        max_bytes: 1000,
        page_size: 3,
        flag: "more".into(),
        count: "n".into(),
        whole: false,
    }
}

fn numbers(count: i32) -> Document {
    doc! {"_id": 1, "f": (0..count).map(Value::Int32).collect::<Vec<_>>(), "x": 1}
}

fn inline(limit: usize, count: i32, has_pages: bool) -> Option<usize> {
    let document = numbers(count);
    paging(limit).inline_len(document.get("f").unwrap().as_array().unwrap(), has_pages)
}

#[test]
fn an_array_is_divided_above_its_limit_and_folds_back_well_below() {
    assert_eq!(inline(10, 10, false), None);
    assert_eq!(inline(10, 11, false), Some(10));
    assert_eq!(inline(10, 11, true), Some(10));
    assert_eq!(inline(10, 8, true), Some(7));
    assert_eq!(inline(10, 7, true), None);
    assert_eq!(inline(1, 1, true), Some(0));
    assert_eq!(inline(1, 0, true), None);
}

#[test]
fn an_array_with_few_large_elements_is_divided_by_its_bytes() {
    let long = "x".repeat(600);
    let document = doc! {"f": vec![Value::from(&*long), Value::from(&*long)]};
    let array = document.get("f").unwrap().as_array().unwrap();
    assert_eq!(paging(10).inline_len(array, false), Some(1));
}

#[test]
fn the_head_tells_of_the_rest() {
    let document = numbers(5);
    let head = paging(2).head(document.as_raw(), 2, 5, true);
    assert_eq!(
        head,
        doc! {"_id": 1, "f": vec![Value::Int32(0), Value::Int32(1)], "x": 1, "more": true, "n": 5}
    );
    let without = doc! {"_id": 1, "f": 3, "more": true, "n": 5};
    assert_eq!(paging(2).head(without.as_raw(), 0, 0, false), doc! {"_id": 1, "f": 3});
}

#[test]
fn a_page_is_extended_without_a_gap() {
    let first = page(RawValue::Int32(7), 2, 2, [RawValue::Int32(1), RawValue::Int32(2)].into_iter());
    let more = extended_page(first.as_raw(), &[RawValue::Int32(3)]).unwrap();
    let expected = page(RawValue::Int32(7), 2, 3, (1..4).map(RawValue::Int32));
    assert_eq!(more, expected);
    assert_eq!(page_len(more.as_raw()), 3);
    assert_eq!(elements_of(more.as_raw()).unwrap().len(), 3);
}
