//! What geometries say of each other, as a real mongod does; and that cells find what shapes hold.

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_geo::covering::{Levels, document_cells, key_ranges, query_cells, ring_cells};
use kilim_geo::{CellID, Geometry, Pair, Shape, angle, parse};
use proptest::prelude::*;

fn list(values: Vec<Value>) -> Value {
    Value::Array(values.into_iter().collect())
}

fn position(x: f64, y: f64) -> Value {
    list(vec![Value::Double(x), Value::Double(y)])
}

fn point(x: f64, y: f64) -> Document {
    doc! {"type": "Point", "coordinates": position(x, y)}
}

fn polygon(corners: &[(f64, f64)]) -> Document {
    let ring = corners.iter().chain(corners.first()).map(|&(x, y)| position(x, y)).collect();
    doc! {"type": "Polygon", "coordinates": list(vec![list(ring)])}
}

fn square(x: f64, y: f64, side: f64) -> Document {
    polygon(&[(x, y), (x + side, y), (x + side, y + side), (x, y + side)])
}

fn geometry(document: &Document) -> Geometry {
    let parsed = parse::stored(RawValue::Document(document.as_raw())).expect("a document");
    parsed.map_err(|what| what.text(|_| String::new(), |number| number.to_string())).expect("a geometry")
}

fn shape(document: &Document) -> Shape {
    Shape::Geometry(geometry(document))
}

#[test]
fn a_boundary_is_inside_for_points_and_outside_for_polygons() {
    let outer = shape(&square(0.0, 0.0, 10.0));
    for (x, y) in [(0.0, 0.0), (10.0, 5.0), (5.0, 0.0), (5.0, 5.0)] {
        assert!(outer.contains(&geometry(&point(x, y))), "{x}, {y}");
        assert!(outer.intersects(&geometry(&point(x, y))), "{x}, {y}");
    }
    assert!(!outer.contains(&geometry(&point(10.001, 5.0))));
    // Beside each other, and at a corner.
    assert!(!outer.intersects(&geometry(&square(10.0, 0.0, 10.0))));
    assert!(!outer.intersects(&geometry(&square(10.0, 10.0, 10.0))));
    assert!(outer.intersects(&geometry(&square(9.0, 9.0, 10.0))));
    assert!(outer.contains(&geometry(&square(0.0, 0.0, 10.0))));
    assert!(outer.contains(&geometry(&square(1.0, 1.0, 2.0))));
}

#[test]
fn edges_are_great_circles() {
    let wide = shape(&polygon(&[(-60.0, -10.0), (60.0, -10.0), (60.0, 10.0), (-60.0, 10.0)]));
    assert!(wide.contains(&geometry(&point(10.0, 10.0))));
}

#[test]
fn winding_does_not_matter_unless_it_is_strict() {
    let clockwise = shape(&polygon(&[(0.0, 0.0), (0.0, 10.0), (10.0, 10.0), (10.0, 0.0)]));
    assert!(clockwise.contains(&geometry(&point(5.0, 5.0))));
    let mut strict = polygon(&[(0.0, 0.0), (0.0, 10.0), (10.0, 10.0), (10.0, 0.0)]);
    strict.push(
        "crs",
        doc! {"type": "name", "properties": {"name": "urn:x-mongodb:crs:strictwinding:EPSG:4326"}},
    );
    let everything_else = shape(&strict);
    assert!(!everything_else.contains(&geometry(&point(5.0, 5.0))));
    assert!(everything_else.contains(&geometry(&point(50.0, 5.0))));
    assert!(everything_else.contains(&geometry(&square(50.0, 5.0, 3.0))));
}

fn finds(ranges: &[(CellID, CellID)], cells: &[CellID]) -> bool {
    cells.iter().any(|cell| ranges.iter().any(|(low, high)| low.0 <= cell.0 && cell.0 <= high.0))
}

const LEVELS: Levels = Levels { coarsest: 2, finest: 16, points_as_leaves: true };

fn triangle() -> impl Strategy<Value = Document> {
    (-170.0..170.0f64, -80.0..80.0f64, 0.001..9.0f64, 0.3..1.0f64).prop_map(|(x, y, size, skew)| {
        polygon(&[(x, y), (x + size, y + size * 0.1), (x + size * skew, y + size)])
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_cells_of_a_query_find_every_point_within(polygon in triangle(), right in 0.0..1.0f64, up in 0.0..1.0f64) {
        let shape = shape(&polygon);
        let Shape::Geometry(Geometry::Polygon(inner)) = &shape else { unreachable!() };
        let corner = inner.loops()[0].vertices()[0];
        let (lng, lat) = (corner.0.y.atan2(corner.0.x).to_degrees(), corner.0.z.asin().to_degrees());
        let place = geometry(&point(lng + right * 5.0, (lat + up * 5.0).min(90.0)));
        let ranges = key_ranges(&query_cells(&shape).expect("cells"), LEVELS);
        if shape.contains(&place) {
            prop_assert!(finds(&ranges, &document_cells(&place, LEVELS)));
        }
    }

    #[test]
    fn the_cells_of_a_query_find_every_polygon_that_it_meets(one in triangle(), other in triangle()) {
        let shape = shape(&one);
        let stored = geometry(&other);
        let ranges = key_ranges(&query_cells(&shape).expect("cells"), LEVELS);
        if shape.intersects(&stored) {
            prop_assert!(finds(&ranges, &document_cells(&stored, LEVELS)));
        }
        // Each meets itself.
        prop_assert!(finds(&ranges, &document_cells(&geometry(&one), LEVELS)));
    }

    #[test]
    fn a_ring_finds_what_is_as_far_away(
        x in -180.0..180.0f64, y in -90.0..90.0f64, to_x in -180.0..180.0f64, to_y in -90.0..90.0f64,
    ) {
        let centre = Pair { x, y }.on_sphere().expect("on earth");
        let place = Pair { x: to_x, y: to_y }.on_sphere().expect("on earth");
        let distance = angle(&centre, &place);
        let ranges = key_ranges(&ring_cells(&centre, distance * 0.9, distance * 1.1 + 1e-9), LEVELS);
        prop_assert!(finds(&ranges, &[CellID::from(&place)]));
    }
}
