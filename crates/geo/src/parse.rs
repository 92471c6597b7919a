//! From BSON to geometry: GeoJSON of all types, legacy pairs, and the shapes of queries. Whatever is wrong is said in
//! MongoDB's words.

use kilim_bson::{RawArray, RawDocument, RawValue};
use s2::point::Point;

use crate::complaint::Complaint;
use crate::geometry::{Geometry, Place, Shape};
use crate::planar::{Circle, Pair, PlanarPolygon, Rectangle};
use crate::polygon::{Polygon, StrictPolygon};
use crate::polyline::Polyline;
use crate::spherical_loop::Loop;

pub type Parsed<'a, T> = Result<T, Complaint<'a>>;

const STRICT_WINDING: &str = "urn:x-mongodb:crs:strictwinding:EPSG:4326";
const PLAIN: [&str; 2] = ["urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326"];

/// A geometry as documents hold it. None where the value is neither a document nor an array.
pub fn stored(value: RawValue<'_>) -> Option<Parsed<'_, Geometry>> {
    let document = container(value)?;
    Some(geometry(value, document, true))
}

/// The operand of `$geometry`. None where it is neither a document nor an array.
pub fn queried(value: RawValue<'_>) -> Option<Parsed<'_, Geometry>> {
    let document = container(value)?;
    Some(geometry(value, document, false))
}

fn geometry<'a>(value: RawValue<'a>, document: RawDocument<'a>, more_numbers: bool) -> Parsed<'a, Geometry> {
    let is_pair = matches!(value, RawValue::Array(_))
        || document.iter().next().is_some_and(|(_, first)| first.is_number());
    if is_pair {
        return Ok(Geometry::Point(Place::flat(pair(value, more_numbers)?)));
    }
    match document.get("type") {
        Some(RawValue::String("GeometryCollection")) => collection(document),
        Some(RawValue::String(name)) => match geojson(name, document) {
            Some(parsed) => parsed,
            None => Err(Complaint::about("unknown GeoJSON type: ", value)),
        },
        _ => Err(Complaint::about("unknown GeoJSON type: ", value)),
    }
}

/// The centre of `$near` and `$geoNear`: a point of GeoJSON.
pub fn geojson_point(document: RawDocument<'_>) -> Parsed<'_, Place> {
    check_crs(document)?;
    let at = pair(document.get("coordinates").unwrap_or(RawValue::Undefined), true)?;
    on_earth(at).map(|_| Place::on_sphere(at))
}

fn geojson<'a>(name: &str, document: RawDocument<'a>) -> Option<Parsed<'a, Geometry>> {
    let coordinates = document.get("coordinates").unwrap_or(RawValue::Undefined);
    Some(match name {
        "Point" => geojson_point(document).map(Geometry::Point),
        "LineString" => check_crs(document).and_then(|()| line(coordinates)).map(Geometry::Line),
        "Polygon" => match crs(document) {
            Err(complaint) => Err(complaint),
            Ok(Crs::Plain) => polygon(coordinates).map(Geometry::Polygon),
            Ok(Crs::StrictWinding) => strict_polygon(coordinates).map(Geometry::StrictPolygon),
        },
        "MultiPoint" => check_crs(document).and_then(|()| {
            let points = points(coordinates)?;
            let places = points.into_iter().map(|(at, _)| Place::on_sphere(at)).collect::<Vec<_>>();
            not_empty(places, "MultiPoint coordinates must have at least 1 element").map(Geometry::MultiPoint)
        }),
        "MultiLineString" => check_crs(document).and_then(|()| {
            let lines = list(coordinates, "MultiLineString coordinates must be an array")?;
            let lines = lines.iter().map(line).collect::<Parsed<'_, Vec<_>>>()?;
            not_empty(lines, "MultiLineString coordinates must have at least 1 element")
                .map(Geometry::MultiLine)
        }),
        "MultiPolygon" => check_crs(document).and_then(|()| {
            let polygons = list(coordinates, "MultiPolygon coordinates must be an array")?;
            let polygons = polygons.iter().map(polygon).collect::<Parsed<'_, Vec<_>>>()?;
            not_empty(polygons, "MultiPolygon coordinates must have at least 1 element")
                .map(Geometry::MultiPolygon)
        }),
        _ => return None,
    })
}

fn collection(document: RawDocument<'_>) -> Parsed<'_, Geometry> {
    let geometries = document.get("geometries").unwrap_or(RawValue::Undefined);
    let geometries = list(geometries, "GeometryCollection geometries must be an array")?;
    let mut members = Vec::new();
    for (at, member) in geometries.iter().enumerate() {
        let Some(document) = member.as_document() else {
            return Err(Complaint::new(format!("Element {at} of \"geometries\" is not an object")));
        };
        let unknown = || Complaint::about("Unknown GeoJSON type: ", member);
        let Some(RawValue::String(name)) = document.get("type") else { return Err(unknown()) };
        if name == "GeometryCollection" {
            return Err(Complaint::about("GeometryCollections cannot be nested: ", member));
        }
        members.push(match geojson(name, document).ok_or_else(unknown)?? {
            // mongod 6.0 has no place for one and ends.
            Geometry::StrictPolygon(_) => {
                return Err(Complaint::new("Strict winding order is not supported in a GeometryCollection"));
            }
            member => member,
        });
    }
    not_empty(members, "GeometryCollection geometries must have at least 1 element").map(Geometry::Collection)
}

fn not_empty<'a, T>(list: Vec<T>, complaint: &'static str) -> Parsed<'a, Vec<T>> {
    if list.is_empty() { Err(Complaint::new(complaint)) } else { Ok(list) }
}

fn list<'a>(value: RawValue<'a>, complaint: &'static str) -> Parsed<'a, RawArray<'a>> {
    value.as_array().ok_or_else(|| Complaint::new(complaint))
}

/// A document, or an array as one.
fn container(value: RawValue<'_>) -> Option<RawDocument<'_>> {
    match value {
        RawValue::Document(document) => Some(document),
        RawValue::Array(array) => Some(array.as_document()),
        _ => None,
    }
}

/// A number as a double.
pub fn number(value: RawValue<'_>) -> Option<f64> {
    match value {
        RawValue::Double(number) => Some(number),
        RawValue::Int32(number) => Some(f64::from(number)),
        RawValue::Int64(number) => Some(number as f64),
        RawValue::Decimal128(number) => Some(number.to_f64()),
        _ => None,
    }
}

/// Two numbers in an array or a document, whatever their names. More elements may follow if `more_numbers`.
pub fn pair(value: RawValue<'_>, more_numbers: bool) -> Parsed<'_, Pair> {
    let document = container(value).ok_or_else(|| Complaint::new("Point must be an array or object"))?;
    let mut elements = document.iter().map(|(_, element)| element);
    let mut coordinate = || {
        let found = elements.next().and_then(number);
        found.ok_or_else(|| Complaint::new("Point must only contain numeric elements"))
    };
    let at = Pair { x: coordinate()?, y: coordinate()? };
    if !more_numbers && elements.next().is_some() {
        return Err(Complaint::new("Point must only contain two numeric elements"));
    }
    if !at.x.is_finite() || !at.y.is_finite() {
        return Err(Complaint::new("Point coordinates must be finite numbers"));
    }
    Ok(at)
}

fn on_earth<'a>(at: Pair) -> Parsed<'a, Point> {
    at.on_sphere().ok_or_else(|| {
        Complaint::new("longitude/latitude is out of bounds, lng: ").number(at.x).with(" lat: ").number(at.y)
    })
}

/// An array of positions.
fn points(value: RawValue<'_>) -> Parsed<'_, Vec<(Pair, Point)>> {
    let list = list(value, "GeoJSON coordinates must be an array of coordinates")?;
    list.iter().map(position).collect()
}

fn position(element: RawValue<'_>) -> Parsed<'_, (Pair, Point)> {
    match element {
        RawValue::Array(_) => {
            let at = pair(element, true)?;
            Ok((at, on_earth(at)?))
        }
        _ => Err(Complaint::new("GeoJSON coordinates must be an array")),
    }
}

/// Vertices of a line or a loop.
fn vertices(value: RawValue<'_>) -> Parsed<'_, Vec<Point>> {
    Ok(points(value)?.into_iter().map(|(_, point)| point).collect())
}

fn line(coordinates: RawValue<'_>) -> Parsed<'_, Polyline> {
    let mut vertices = vertices(coordinates)?;
    vertices.dedup();
    if vertices.len() < 2 {
        return Err(Complaint::about("GeoJSON LineString must have at least 2 vertices: ", coordinates));
    }
    Ok(Polyline::new(vertices))
}

/// A closed ring of positions as a loop in the order given.
fn ring(coordinates: RawValue<'_>) -> Parsed<'_, Loop> {
    let mut vertices = vertices(coordinates)?;
    let (Some(first), Some(last)) = (vertices.first(), vertices.last()) else {
        return Err(Complaint::about("Loop has no vertices: ", coordinates));
    };
    if first != last {
        return Err(Complaint::about("Loop is not closed: ", coordinates));
    }
    vertices.dedup();
    vertices.pop();
    if vertices.len() < 3 {
        return Err(Complaint::about("Loop must have at least 3 different vertices: ", coordinates));
    }
    let made = Loop::new(vertices);
    made.check()
        .map_err(|what| Complaint::about("Loop is not valid: ", coordinates).with(format!(" {what}")))?;
    Ok(made)
}

fn polygon(coordinates: RawValue<'_>) -> Parsed<'_, Polygon> {
    let rings = list(coordinates, "Polygon coordinates must be an array")?;
    let mut loops: Vec<Loop> = Vec::new();
    for coordinates in rings.iter() {
        let ring = ring(coordinates)?.normalised();
        if loops.first().is_some_and(|outer| !outer.contains_loop(&ring)) {
            const OUTSIDE: &str =
                "Secondary loops not contained by first exterior loop - secondary loops must be holes: ";
            let outer = rings.get(0).unwrap_or(RawValue::Undefined);
            return Err(Complaint::about(OUTSIDE, coordinates).with(" first loop: ").value(outer));
        }
        loops.push(ring);
    }
    if loops.is_empty() {
        return Err(Complaint::new("Polygon has no loops."));
    }
    if loops.len() == 1 {
        return Ok(Polygon::new(loops));
    }
    let invalid = |what| Complaint::about(format!("Polygon isn't valid: {what} "), coordinates);
    Polygon::check(&loops).map_err(invalid)?;
    let polygon = Polygon::new(loops);
    if let Some(hole) = polygon.hole_sharing_vertices() {
        let what = format!("Loop {hole} shares more than one vertex with its parent loop 0: ");
        return Err(Complaint::about(what, coordinates));
    }
    if polygon.has_nested_holes() {
        return Err(Complaint::about("Polygon interior loops cannot be nested: ", coordinates));
    }
    Ok(polygon)
}

fn strict_polygon(coordinates: RawValue<'_>) -> Parsed<'_, StrictPolygon> {
    let rings = list(coordinates, "Coordinates of polygon must be an array")?;
    match rings.get(0) {
        Some(only) if rings.len() == 1 => ring(only).map(StrictPolygon::new),
        _ => Err(Complaint::about("Only one simple loop is allowed in a big polygon: ", coordinates)),
    }
}

enum Crs {
    Plain,
    StrictWinding,
}

fn crs(document: RawDocument<'_>) -> Parsed<'_, Crs> {
    let Some(given) = document.get("crs") else { return Ok(Crs::Plain) };
    let given = given.as_document().ok_or_else(|| Complaint::new("GeoJSON CRS must be an object"))?;
    if !matches!(given.get("type"), Some(RawValue::String("name"))) {
        return Err(Complaint::new("GeoJSON CRS must have field \"type\": \"name\""));
    }
    let properties = given.get("properties").and_then(RawValue::as_document);
    let properties =
        properties.ok_or_else(|| Complaint::new("CRS must have field \"properties\" which is an object"))?;
    match properties.get("name") {
        Some(RawValue::String(name)) if PLAIN.contains(&name) => Ok(Crs::Plain),
        Some(RawValue::String(STRICT_WINDING)) => Ok(Crs::StrictWinding),
        Some(RawValue::String(name)) => Err(Complaint::new(format!("Unknown CRS name: {name}"))),
        _ => Err(Complaint::new("In CRS, \"properties.name\" must be a string")),
    }
}

/// Refuses strict winding, which only polygons have.
fn check_crs(document: RawDocument<'_>) -> Parsed<'_, ()> {
    match crs(document)? {
        Crs::Plain => Ok(()),
        Crs::StrictWinding => Err(Complaint::new("Strict winding order is only supported by polygon")),
    }
}

/// A shape by the name of its operator. None for an unknown name, or an operand that is neither a document nor an array.
pub fn shape<'a>(name: &str, operand: RawValue<'a>) -> Option<Parsed<'a, Shape>> {
    let document = container(operand)?;
    let elements = || document.iter().map(|(_, element)| element);
    Some(match name {
        "$geometry" => geometry(operand, document, false).map(Shape::Geometry),
        "$box" => {
            let mut corners = elements();
            let mut corner = || pair(corners.next().unwrap_or(RawValue::Undefined), false);
            corner().and_then(|a| Ok(Shape::Box(Rectangle::of(a, corner()?))))
        }
        "$polygon" => {
            elements().map(|point| pair(point, false)).collect::<Parsed<'_, Vec<_>>>().and_then(|all| {
                if all.len() < 3 {
                    return Err(Complaint::new("Polygon must have at least 3 points"));
                }
                Ok(Shape::Polygon(PlanarPolygon::new(all)))
            })
        }
        "$center" => circle(document).map(|(centre, radius)| Shape::Circle(Circle { centre, radius })),
        "$centerSphere" => circle(document).and_then(|(centre, radius)| {
            let point = on_earth(centre)?;
            Ok(Shape::cap(point, centre, radius))
        }),
        _ => return None,
    })
}

fn circle(document: RawDocument<'_>) -> Parsed<'_, (Pair, f64)> {
    let mut elements = document.iter().map(|(_, element)| element);
    let centre = pair(elements.next().unwrap_or(RawValue::Undefined), false)?;
    let radius = elements.next().and_then(number).filter(|radius| *radius >= 0.0);
    let radius = radius.ok_or_else(|| Complaint::new("radius must be a non-negative number"))?;
    if elements.next().is_some() {
        return Err(Complaint::new("Only 2 fields allowed for circular region"));
    }
    Ok((centre, radius))
}
