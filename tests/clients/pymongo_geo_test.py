"""Places by pymongo: what tutorials do first. One line per check."""

from pymongo import GEO2D, GEOSPHERE
from pymongo.errors import WriteError

from checks import check, equal, fails, main, plan_stages

MANHATTAN = {
    "type": "Polygon",
    "coordinates": [[[-74.02, 40.70], [-73.97, 40.71], [-73.93, 40.80], [-73.96, 40.82], [-74.02, 40.70]]],
}


def place(name, lng, lat):
    return {"_id": name, "location": {"type": "Point", "coordinates": [lng, lat]}}


def fill(db):
    db.places.insert_many([
        place("Central Park", -73.97, 40.77),
        place("Sara D. Roosevelt Park", -73.9928, 40.7193),
        place("Polo Grounds", -73.9375, 40.8303),
        place("Prospect Park", -73.969, 40.660),
    ])


def names(cursor):
    return [document["_id"] for document in cursor]


@check
def a_polygon_holds_what_lies_within(db):
    fill(db)
    within = {"location": {"$geoWithin": {"$geometry": MANHATTAN}}}
    equal(sorted(names(db.places.find(within))), ["Central Park", "Sara D. Roosevelt Park"])
    db.places.create_index([("location", GEOSPHERE)])
    equal(sorted(names(db.places.find(within))), ["Central Park", "Sara D. Roosevelt Park"])
    equal(plan_stages(db.places.find(within).explain()), ["FETCH", "IXSCAN"])
    circle = {"location": {"$geoWithin": {"$centerSphere": [[-73.97, 40.77], 5 / 3963.2]}}}
    equal(sorted(names(db.places.find(circle))), ["Central Park", "Polo Grounds", "Sara D. Roosevelt Park"])


@check
def the_nearest_comes_first(db):
    fill(db)
    centre = {"type": "Point", "coordinates": [-73.9667, 40.78]}
    near = {"location": {"$near": {"$geometry": centre, "$minDistance": 1000, "$maxDistance": 15000}}}
    fails(291, lambda: list(db.places.find(near)))
    db.places.create_index([("location", GEOSPHERE)])
    equal(names(db.places.find(near)), ["Central Park", "Polo Grounds", "Sara D. Roosevelt Park", "Prospect Park"])
    equal(plan_stages(db.places.find(near).explain()), ["GEO_NEAR_2DSPHERE"])
    equal(names(db.places.find(near).limit(1)), ["Central Park"])


@check
def the_distance_is_put_into_a_field(db):
    fill(db)
    db.places.create_index([("location", GEOSPHERE)])
    stage = {"near": {"type": "Point", "coordinates": [-73.97, 40.77]}, "distanceField": "dist.calculated",
             "includeLocs": "dist.location", "maxDistance": 8000}
    found = list(db.places.aggregate([{"$geoNear": stage}]))
    equal(names(found), ["Central Park", "Sara D. Roosevelt Park", "Polo Grounds"])
    equal(found[0]["dist"]["calculated"], 0.0)
    equal(found[0]["dist"]["location"]["type"], "Point")
    assert 5900 < found[1]["dist"]["calculated"] < 6000, found[1]


@check
def pairs_of_a_plane(db):
    db.maps.create_index([("loc", GEO2D)], min=-500, max=500)
    db.maps.insert_many([{"_id": n, "loc": [n * 10, n * 10]} for n in range(10)])
    equal(names(db.maps.find({"loc": {"$near": [24, 24]}}).limit(3)), [2, 3, 1])
    equal(sorted(names(db.maps.find({"loc": {"$within": {"$box": [[15, 15], [35, 35]]}}}))), [2, 3])
    equal(sorted(names(db.maps.find({"loc": {"$geoWithin": {"$center": [[0, 0], 15]}}}))), [0, 1])
    fails(13027, lambda: db.maps.insert_one({"loc": [501, 0]}), WriteError)


@check
def what_is_no_place_is_refused_by_an_index(db):
    db.places.create_index([("location", GEOSPHERE)])
    crossed = {"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]}
    error = fails(16755, lambda: db.places.insert_one({"location": crossed}), WriteError)
    assert "Edges 0 and 2 cross" in str(error), error
    fails(16755, lambda: db.places.insert_one({"location": {"type": "Point", "coordinates": [181, 0]}}), WriteError)
    db.places.insert_one({"location": None})
    equal(db.places.count_documents({}), 1)


if __name__ == "__main__":
    main("pymongo_geo")
