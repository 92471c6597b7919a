use super::DEFINITIONS;

#[test]
fn the_table_is_in_order() {
    assert!(DEFINITIONS.is_sorted_by(|one, next| one.name < next.name));
}
