//! Histories of places: `2dsphere` and `2d` indexes, shapes of all kinds, what lies within, what intersects, what is near.
//!
//! Positions are often round ones, where edges meet, lie on meridians, run through a pole or over the antimeridian; the others are
//! any. Shapes on the sphere are made around a centre, so that most of them are valid, wherever they lie.
//!
//! Distances are compared to nine digits ([`alike`]), and documents of equal distance in any order. A `limit` could cut between
//! such documents, of which those that hold the place are many, so it is asked for only among points that are not round.

use kilim_bson::{Array, Document, RawValue, Value, doc};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::one_case;
use crate::spec::{Action, Answer, Case};

const COLLECTION: &str = "t";
const STRICT_WINDING: &str = "urn:x-mongodb:crs:strictwinding:EPSG:4326";
/// Relative error that a distance may have.
const TOLERANCE: f64 = 1e-9;

/// A longitude and a latitude in degrees, or a place of the plane.
type Position = (f64, f64);

pub(super) fn generate(random: &mut StdRng) -> Case {
    let mut places = Places { random, round: false, centre: (0.0, 0.0) };
    places.round = places.random.random_bool(0.5);
    places.centre = places.any();
    let mut actions = Vec::new();
    let count = places.random.random_range(1..25);
    let documents = (0..count).map(|id| places.document(id)).collect();
    actions.push(Action::Given { collection: COLLECTION.to_owned(), documents });
    let keys = [doc! {"p": "2dsphere"}, doc! {"q": "2d"}, doc! {"l.p": "2dsphere"}];
    for key in keys {
        if places.chance(0.75) {
            actions.push(Action::Run(places.index(key)));
        }
    }
    for _ in 0..places.random.random_range(5..14) {
        actions.push(places.question(count));
    }
    actions.push(Action::Docs { unordered: false, command: doc! {"find": COLLECTION, "sort": {"_id": 1}} });
    one_case(actions)
}

struct Places<'a> {
    random: &'a mut StdRng,
    /// Whether positions come from few that are round.
    round: bool,
    /// Most positions lie around here.
    centre: Position,
}

impl Places<'_> {
    fn choose<T: Copy>(&mut self, list: &[T]) -> T {
        *list.choose(self.random).expect("not empty")
    }

    fn chance(&mut self, share: f64) -> bool {
        self.random.random_bool(share)
    }

    fn any(&mut self) -> Position {
        if self.round {
            let longitude =
                self.choose(&[0.0, 10.0, -10.0, 20.0, 45.0, 90.0, -90.0, 170.0, 180.0, -180.0, 135.0]);
            let latitude = self.choose(&[0.0, 0.0, 10.0, -10.0, 20.0, 45.0, -45.0, 80.0, 90.0, -90.0]);
            return (longitude, latitude);
        }
        let longitude = rounded(self.random.random_range(-180.0..180.0));
        let latitude = match self.chance(0.2) {
            true => self.choose(&[89.5, -89.5, 89.999, 0.0]),
            false => rounded(self.random.random_range(-90.0..90.0)),
        };
        (longitude, latitude)
    }

    /// A position near the centre, or anywhere.
    fn position(&mut self) -> Position {
        match self.random.random_range(0..10) {
            0..3 => self.any(),
            _ if self.round => {
                let (longitude, latitude) = self.centre;
                let steps = [0.0, 0.0, 1.0, -1.0, 5.0, -5.0, 10.0];
                let (east, north) = (self.choose(&steps), self.choose(&steps));
                (wrapped(longitude + east), (latitude + north).clamp(-90.0, 90.0))
            }
            _ => {
                let (bearing, distance) = (self.random.random_range(0.0..360.0), self.distance());
                destination(self.centre, bearing, distance)
            }
        }
    }

    /// Degrees of a great circle.
    fn distance(&mut self) -> f64 {
        match self.random.random_range(0..4) {
            0 => self.random.random_range(0.001..0.1),
            1 | 2 => self.random.random_range(0.1..5.0),
            _ => self.random.random_range(5.0..80.0),
        }
    }

    fn line(&mut self) -> Vec<Position> {
        let count = self.choose(&[1, 2, 2, 2, 3, 4]);
        self.vertices(count)
    }

    /// Positions of which no two lie in one pole, nor one behind the other on opposite sides of the earth: what such edges
    /// are, nobody can tell.
    fn vertices(&mut self, count: usize) -> Vec<Position> {
        let mut vertices: Vec<Position> = Vec::new();
        while vertices.len() < count {
            let new = self.position();
            if !vertices.iter().any(|&old| is_degenerate(old, new)) {
                vertices.push(new);
            }
        }
        vertices
    }

    /// The rings of a polygon.
    fn polygon(&mut self) -> Vec<Vec<Position>> {
        let mut rings = match self.random.random_range(0..10) {
            0..3 => {
                let (west, south) = self.position();
                let sides = [1.0, 5.0, 10.0, 20.0, 60.0, 100.0];
                let (width, height) = (self.choose(&sides), self.choose(&sides));
                let (east, north) = (wrapped(west + width), (south + height).min(90.0));
                // A side in a pole would be one vertex twice.
                let (south, north) = (south.max(-89.0), if north == 90.0 { 89.0 } else { north });
                vec![closed(vec![(west, south), (east, south), (east, north), (west, north)])]
            }
            3 => {
                let count = self.choose(&[2, 3, 3, 4]);
                vec![closed(self.vertices(count))]
            }
            _ => {
                let (middle, radius) = (self.position(), self.distance());
                let sides = self.random.random_range(3..8);
                let outer = self.star(middle, radius, sides);
                match self.chance(0.25) {
                    true => vec![outer, self.star(middle, radius * 0.3, 4)],
                    false => vec![outer],
                }
            }
        };
        if self.chance(0.5) {
            rings.iter_mut().for_each(|ring| ring.reverse());
        }
        if self.chance(0.04) {
            rings[0].pop();
        }
        rings
    }

    /// A ring of vertices around a middle, at most at this distance.
    fn star(&mut self, middle: Position, radius: f64, sides: usize) -> Vec<Position> {
        let vertices = (0..sides).map(|side| {
            let bearing = (side as f64 + 0.2) * 360.0 / sides as f64;
            destination(middle, bearing, radius * self.random.random_range(0.7..1.0))
        });
        closed(vertices.collect())
    }

    /// A geometry of any type.
    fn geometry(&mut self, depth: usize) -> Document {
        match self.random.random_range(0..14) {
            0..5 => point(self.position()),
            5 | 6 => doc! {"type": "LineString", "coordinates": pairs(&self.line())},
            7..10 => doc! {"type": "Polygon", "coordinates": rings(&self.polygon())},
            10 => doc! {"type": "MultiPoint", "coordinates": pairs(&self.line())},
            11 => {
                let lines = [self.line(), self.line()];
                doc! {"type": "MultiLineString", "coordinates": rings(&lines)}
            }
            12 => {
                let polygons = [rings(&self.polygon()), rings(&self.polygon())];
                let polygons: Array = polygons.into_iter().map(Value::Array).collect();
                doc! {"type": "MultiPolygon", "coordinates": polygons}
            }
            _ if depth > 0 => {
                let geometries = vec![self.geometry(0), self.geometry(0)];
                doc! {"type": "GeometryCollection", "geometries": geometries}
            }
            _ => point(self.position()),
        }
    }

    /// What a `2dsphere` index may hold, and now and then what it may not.
    fn place(&mut self) -> Value {
        match self.random.random_range(0..30) {
            0 => Value::Null,
            1 => Value::Array(pair(self.position())),
            2 => {
                let (x, y) = self.position();
                Value::Document(doc! {"lng": x, "lat": y})
            }
            3 if self.chance(0.3) => Value::Document(doc! {"type": "Point", "coordinates": [200, 0]}),
            4 if self.chance(0.3) => Value::from("somewhere"),
            _ => Value::Document(self.geometry(1)),
        }
    }

    /// What a `2d` index may hold.
    fn flat(&mut self) -> Value {
        match self.random.random_range(0..20) {
            0 => Value::Null,
            1 => {
                let (x, y) = self.flat_position();
                Value::Document(doc! {"x": x, "y": y})
            }
            2 => {
                let pairs = [self.flat_position(), self.flat_position()];
                Value::Array(self::pairs(&pairs))
            }
            3 if self.chance(0.2) => Value::Array(pair((500.0, 0.0))),
            _ => Value::Array(pair(self.flat_position())),
        }
    }

    /// On the sphere, not near its other side: a `2d` index of mongod does not look over the antimeridian.
    fn flat_position(&mut self) -> Position {
        match self.round {
            true => {
                let steps = [0.0, 1.0, -1.0, 2.0, 5.0, 10.0, -10.0, 20.0, 0.5];
                (self.choose(&steps), self.choose(&steps))
            }
            false => {
                let reach = self.choose(&[1.0, 10.0, 60.0]);
                let mut along = || rounded(self.random.random_range(-reach..reach));
                (along(), along() / 2.0)
            }
        }
    }

    fn document(&mut self, id: i32) -> Document {
        let mut document = doc! {"_id": id, "k": self.random.random_range(0..3)};
        if self.chance(0.9) {
            document.push("p", self.place());
        }
        if self.chance(0.7) {
            document.push("q", self.flat());
        }
        if self.chance(0.2) {
            let parts: Vec<Document> = (0..2).map(|_| doc! {"p": point(self.position())}).collect();
            document.push("l", parts);
        }
        document
    }

    /// An index of places, perhaps with another field behind or before them.
    fn index(&mut self, key: Document) -> Document {
        let flat = key.get("q").is_some();
        let mut key = key;
        match self.random.random_range(0..8) {
            0 => key.push("k", 1),
            1 if !flat => key = [("k", Value::Int32(1))].into_iter().chain(fields(&key)).collect(),
            _ => {}
        }
        let name = crate::spec::default_index_name(key.as_raw());
        let mut index = doc! {"key": key, "name": name};
        match (flat, self.random.random_range(0..6)) {
            (true, 0) => index.push("bits", self.choose(&[1, 8, 26, 32])),
            (true, 1) => {
                index.push("min", -1000);
                index.push("max", 1000.5);
            }
            (false, 0) => index.push("2dsphereIndexVersion", self.choose(&[1, 2, 3])),
            (_, 2) => index.push("sparse", true),
            _ => {}
        }
        doc! {"createIndexes": COLLECTION, "indexes": [index]}
    }

    /// A shape of the plane for `$geoWithin`.
    fn flat_shape(&mut self) -> Document {
        match self.random.random_range(0..4) {
            0 => {
                let corners = [self.flat_position(), self.flat_position()];
                doc! {"$box": pairs(&corners)}
            }
            1 => {
                let vertices: Vec<Position> =
                    (0..self.random.random_range(3..6)).map(|_| self.flat_position()).collect();
                doc! {"$polygon": pairs(&vertices)}
            }
            2 => {
                let radius = self.choose(&[0.0, 1.0, 5.0, 10.0, 33.3]);
                doc! {"$center": [pair(self.flat_position()), radius]}
            }
            _ => {
                let radius = self.choose(&[0.001, 0.1, 0.5]);
                doc! {"$centerSphere": [pair(self.flat_position()), radius]}
            }
        }
    }

    /// A condition that needs no index.
    fn condition(&mut self) -> Document {
        let path = self.choose(&["p", "p", "p", "l.p"]);
        match self.random.random_range(0..10) {
            0..3 => doc! {path: {"$geoIntersects": {"$geometry": self.geometry(1)}}},
            3..6 => {
                let mut polygon = doc! {"type": "Polygon", "coordinates": rings(&self.polygon())};
                if self.chance(0.15) {
                    // Which side of its ring such a polygon is depends on the winding; it has no holes.
                    let ring = self.polygon().remove(0);
                    polygon = doc! {"type": "Polygon", "coordinates": rings(&[ring])};
                    polygon.push("crs", doc! {"type": "name", "properties": {"name": STRICT_WINDING}});
                }
                doc! {path: {"$geoWithin": {"$geometry": polygon}}}
            }
            6 | 7 => {
                let radius = match self.round {
                    true => self.choose(&[0.01, 0.1, 1.0, 1.6, 3.0, 4.0]),
                    false => self.distance().to_radians(),
                };
                doc! {path: {"$geoWithin": {"$centerSphere": [pair(self.position()), radius]}}}
            }
            8 => doc! {"q": {"$geoWithin": self.flat_shape()}},
            _ => doc! {"p": {"$geoWithin": self.flat_shape()}},
        }
    }

    fn filter(&mut self) -> Document {
        let mut filter = self.condition();
        match self.random.random_range(0..8) {
            0 => filter.push("k", self.random.random_range(0..3)),
            1 => filter = doc! {"$or": [filter, self.condition()]},
            2 => filter = doc! {"$and": [filter, self.condition()]},
            3 => filter = doc! {"$nor": [filter]},
            _ => {}
        }
        filter
    }

    /// Metres, as a bound of what is near.
    fn metres(&mut self) -> f64 {
        (self.distance() * 111_000.0).round()
    }

    fn near(&mut self) -> Document {
        let mut filter = match self.random.random_range(0..6) {
            0..3 => {
                let mut near = doc! {"$geometry": point(self.position())};
                if self.chance(0.5) {
                    near.push("$maxDistance", self.metres());
                }
                if self.chance(0.3) {
                    near.push("$minDistance", self.metres());
                }
                let operator = self.choose(&["$near", "$nearSphere"]);
                doc! {"p": {operator: near}}
            }
            3 => doc! {"q": {"$nearSphere": pair(self.flat_position()), "$maxDistance": 0.5}},
            _ => {
                let mut near = doc! {"$near": pair(self.flat_position())};
                if self.chance(0.5) {
                    near.push("$maxDistance", self.choose(&[0.0, 1.0, 5.0, 14.5]));
                }
                if self.chance(0.3) {
                    near.push("$minDistance", self.choose(&[0.0, 1.0, 4.5]));
                }
                doc! {"q": near}
            }
        };
        if self.chance(0.3) {
            filter.push("k", self.random.random_range(0..3));
        }
        filter
    }

    fn geo_near(&mut self) -> Vec<Document> {
        let flat = self.chance(0.3);
        let mut stage = match flat {
            true => doc! {"near": pair(self.flat_position()), "key": "q"},
            false => doc! {"near": point(self.position()), "key": self.choose(&["p", "p", "p", "l.p"])},
        };
        stage.push("distanceField", "distance");
        if !flat || self.chance(0.3) {
            stage.push("spherical", true);
        }
        if self.chance(0.4) {
            stage.push("includeLocs", "place");
        }
        if flat || self.chance(0.4) {
            // Of a plane in its units, of a sphere in radians, neither far.
            stage.push("maxDistance", if flat { 0.5 } else { self.metres() });
        }
        if !flat && self.chance(0.3) {
            stage.push("minDistance", self.metres());
        }
        if self.chance(0.3) {
            stage.push("query", doc! {"k": self.random.random_range(0..3)});
        }
        if self.chance(0.2) {
            stage.push("distanceMultiplier", self.choose(&[0.001, 2.0, 0.0]));
        }
        let mut pipeline = vec![doc! {"$geoNear": stage}];
        if flat && !self.round && self.chance(0.3) {
            pipeline.push(doc! {"$limit": self.random.random_range(1..5)});
        }
        pipeline
    }

    fn question(&mut self, count: i32) -> Action {
        match self.random.random_range(0..20) {
            0..8 => {
                Action::Docs { unordered: true, command: doc! {"find": COLLECTION, "filter": self.filter()} }
            }
            8 => Action::Run(doc! {"count": COLLECTION, "query": self.filter()}),
            9..12 => {
                let mut find = doc! {"find": COLLECTION, "filter": self.near()};
                let flat = find
                    .get("filter")
                    .and_then(RawValue::as_document)
                    .is_some_and(|it| it.get("q").is_some());
                if flat && !self.round && self.chance(0.3) {
                    find.push("limit", self.random.random_range(1..5));
                }
                Action::Docs { unordered: true, command: find }
            }
            12..17 => {
                let pipeline = self.geo_near();
                let command = doc! {"aggregate": COLLECTION, "pipeline": pipeline, "cursor": {}};
                Action::Docs { unordered: false, command }
            }
            17 => {
                let id = self.random.random_range(0..count + 3);
                let statement = doc! {"q": {"_id": id}, "u": self.document(id), "upsert": true};
                Action::Run(doc! {"update": COLLECTION, "updates": [statement]})
            }
            18 => {
                let statement = doc! {"q": self.filter(), "u": {"$inc": {"n": 1}}, "multi": true};
                Action::Run(doc! {"update": COLLECTION, "updates": [statement]})
            }
            _ => {
                let statement = doc! {
                    "q": {"_id": self.random.random_range(0..count)}, "u": {"$set": {"p": self.place()}},
                };
                Action::Run(doc! {"update": COLLECTION, "updates": [statement]})
            }
        }
    }
}

fn fields(document: &Document) -> Vec<(&str, Value)> {
    document.iter().map(|(name, value)| (name, value.to_value())).collect()
}

fn pair((x, y): Position) -> Array {
    [Value::Double(x), Value::Double(y)].into_iter().collect()
}

fn pairs(positions: &[Position]) -> Array {
    positions.iter().map(|position| Value::Array(pair(*position))).collect()
}

fn rings(rings: &[Vec<Position>]) -> Array {
    rings.iter().map(|ring| Value::Array(pairs(ring))).collect()
}

fn point(position: Position) -> Document {
    doc! {"type": "Point", "coordinates": pair(position)}
}

fn closed(mut ring: Vec<Position>) -> Vec<Position> {
    ring.push(ring[0]);
    ring
}

/// Whether both lie in one pole, or opposite to each other.
fn is_degenerate(one: Position, other: Position) -> bool {
    let polar = one.1.abs() == 90.0 && other.1.abs() == 90.0;
    let opposite = one.1 == -other.1 && (one.0 - other.0).abs() == 180.0;
    polar || opposite
}

fn rounded(degrees: f64) -> f64 {
    (degrees * 1e5).round() / 1e5
}

/// The longitude on this side of the antimeridian.
fn wrapped(longitude: f64) -> f64 {
    match longitude {
        it if it > 180.0 => it - 360.0,
        it if it < -180.0 => it + 360.0,
        it => it,
    }
}

/// Where a great circle leads from a place, after so many degrees.
fn destination((longitude, latitude): Position, bearing: f64, distance: f64) -> Position {
    let (latitude, bearing, distance) = (latitude.to_radians(), bearing.to_radians(), distance.to_radians());
    let sine = latitude.sin() * distance.cos() + latitude.cos() * distance.sin() * bearing.cos();
    let east = (bearing.sin() * distance.sin() * latitude.cos())
        .atan2(distance.cos() - latitude.sin() * sine)
        .to_degrees();
    (rounded(wrapped(longitude + east)), rounded(sine.clamp(-1.0, 1.0).asin().to_degrees()))
}

/// Whether two answers of a `$geoNear` are the same but for the last digits of distances and the order of documents
/// that are equally far.
pub(super) fn alike(mongod: &Answer, kilim: &Answer) -> bool {
    let in_order = matches!(mongod, Answer::Rows(_));
    let (Answer::Rows(mongod) | Answer::Set(mongod), Answer::Rows(kilim) | Answer::Set(kilim)) =
        (mongod, kilim)
    else {
        return false;
    };
    let same_distance = |one: &Value, other: &Value| {
        distance(one).zip(distance(other)).is_some_and(|(one, other)| near(one, other))
    };
    let in_step = || mongod.iter().zip(kilim).all(|(one, other)| same_distance(one, other));
    let is_there = |one: &Value| {
        let same = |other: &&Value| without_distance(one) == without_distance(other);
        kilim.iter().find(same).is_some_and(|other| same_distance(one, other))
    };
    mongod.len() == kilim.len() && (!in_order || in_step()) && mongod.iter().all(is_there)
}

fn near(one: f64, other: f64) -> bool {
    // Below a metre it is the noise of a sine.
    (one - other).abs() <= TOLERANCE * one.abs().max(other.abs()).max(1.0)
}

fn distance(row: &Value) -> Option<f64> {
    match row.as_raw().as_document()?.get("distance")? {
        RawValue::Double(distance) => Some(distance),
        _ => None,
    }
}

fn without_distance(row: &Value) -> Vec<String> {
    let fields = row.as_raw().as_document().into_iter().flatten();
    let rest = fields.filter(|(name, _)| *name != "distance");
    rest.map(|(name, value)| format!("{name}: {}", crate::shell::print(value))).collect()
}
