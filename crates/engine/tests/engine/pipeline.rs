//! Pipelines over snapshots, views among them: what they read, what they survive, what they hold in memory.

use kilim_bson::{Array, Document, Value, doc};
use kilim_engine::catalog::View;
use kilim_engine::operator::ExecContext;
use kilim_engine::pipeline::{Options, Reader, Step};
use kilim_engine::unit::Unit;
use kilim_engine::{Engine, Namespace};
use kilim_error::{ErrorCode, Result};
use kilim_query::expression::{Bindings, Scope, Variables};
use kilim_query::stage::{Context, Owner, Pipeline, Stage};

use crate::support::{Db, everywhere, ns, number, numbered, spec};

fn stages(list: Vec<Document>) -> Array {
    list.into_iter().map(Value::Document).collect()
}

fn nobody(_: &Engine, _: &Namespace, _: &Stage) -> Result<Vec<Document>> {
    Ok(Vec::new())
}

pub fn open(db: &Db, collection: &str, list: Vec<Document>, allow_disk_use: bool) -> Result<Box<dyn Step>> {
    db.run(|unit| open_in(unit, collection, list, allow_disk_use))
}

/// What a pipeline gives to a unit that may be part of a transaction.
pub fn read_in(unit: &mut Unit<'_>, collection: &str, list: Vec<Document>) -> Result<Vec<Document>> {
    open_in(unit, collection, list, true).and_then(drain)
}

fn open_in(
    unit: &mut Unit<'_>,
    collection: &str,
    list: Vec<Document>,
    allow_disk_use: bool,
) -> Result<Box<dyn Step>> {
    let variables = Variables::default();
    let scope = Scope::new(&variables);
    let namespace = ns(collection);
    let context = Context::new(&scope, &namespace.database, Owner::Collection);
    let pipeline = Pipeline::parse(stages(list).as_raw(), &context)?;
    let mut namespaces = vec![namespace.clone()];
    pipeline.collections(&mut |database, collection| {
        namespaces.push(Namespace { database: database.to_owned(), collection: collection.to_owned() });
    });
    let options = Options { allow_disk_use, tell: nobody };
    let reader = Reader::new(unit, namespaces, &variables, options)?;
    let prepared = reader.prepare_outermost(&namespace, &pipeline)?;
    prepared.open(Bindings::none(), &mut ExecContext::new(&|| Ok(())))
}

pub fn drain(mut step: Box<dyn Step>) -> Result<Vec<Document>> {
    let mut context = ExecContext::new(&|| Ok(()));
    let mut documents = Vec::new();
    while let Some(row) = step.next(&mut context)? {
        documents.push(row.document().to_document());
    }
    Ok(documents)
}

pub fn run(db: &Db, collection: &str, list: Vec<Document>) -> Vec<Document> {
    open(db, collection, list, true).and_then(drain).expect("documents")
}

fn view(name: &str, on: &str, list: Vec<Document>) -> Result<View> {
    View::new(ns(name), on, stages(list), None)
}

#[test]
fn views_are_there_after_a_restart() {
    let mut db = Db::disk();
    db.insert("c", &numbered(0..5, |id| doc! {"a": id % 2}));
    db.engine.create_view(view("odd", "c", vec![doc! {"$match": {"a": 1}}]).unwrap()).unwrap();
    db.engine.create_view(view("last", "odd", vec![doc! {"$sort": {"_id": -1}}]).unwrap()).unwrap();
    db.engine.create_view(view("gone", "c", vec![]).unwrap()).unwrap();
    assert!(db.engine.drop_view(&ns("gone")).unwrap());
    db.reopen();
    assert_eq!(run(&db, "last", vec![doc! {"$limit": 1}]), [doc! {"_id": 3, "a": 1}]);
    assert!(db.engine.view(&ns("gone")).is_none());
    assert_eq!(db.try_insert("odd", doc! {}).unwrap_err().code(), ErrorCode::CommandNotSupportedOnView);
    let circle = view("odd", "last", vec![]).unwrap();
    assert_eq!(db.engine.modify_view(circle).unwrap_err().code(), ErrorCode::GraphContainsCycle);
}

#[test]
fn a_pipeline_reads_what_was_there_when_it_began() {
    everywhere(|db| {
        db.insert("c", &numbered(0..10, |id| doc! {"a": id}));
        let pipeline =
            vec![doc! {"$match": {"a": {"$gte": 5}}}, doc! {"$unionWith": "c"}, doc! {"$count": "n"}];
        let step = open(&db, "c", pipeline, true).unwrap();
        db.insert("c", &numbered(10..20, |id| doc! {"a": id}));
        db.delete("c", doc! {"a": {"$lt": 3}}).unwrap();
        assert_eq!(drain(step).unwrap(), [doc! {"n": 15}]);
    });
}

#[test]
fn counting_and_telling_values_apart_give_the_same_with_and_without_an_index() {
    everywhere(|db| {
        let value = |id: i32| match id % 5 {
            0 => doc! {},
            1 => doc! {"a": null, "b": id},
            rest => doc! {"a": rest, "b": id},
        };
        db.insert("c", &numbered(0..50, value));
        let pipelines = || {
            [
                vec![doc! {"$match": {"a": {"$gt": 2}}}, doc! {"$count": "n"}],
                vec![doc! {"$match": {"a": 2}}, doc! {"$skip": 3}, doc! {"$count": "n"}],
                vec![doc! {"$group": {"_id": "$a"}}, doc! {"$sort": {"_id": 1}}],
                vec![
                    doc! {"$match": {"a": {"$gte": 2}}},
                    doc! {"$group": {"_id": "$a"}},
                    doc! {"$sort": {"_id": 1}},
                ],
                vec![
                    doc! {"$sort": {"a": 1, "b": 1}},
                    doc! {"$group": {"_id": "$a", "b": {"$first": "$b"}}},
                    doc! {"$sort": {"_id": -1}},
                ],
            ]
        };
        let without: Vec<Vec<Document>> = pipelines().map(|list| run(&db, "c", list)).into();
        db.build("c", vec![spec(doc! {"a": 1, "b": 1})]).unwrap();
        let with: Vec<Vec<Document>> = pipelines().map(|list| run(&db, "c", list)).into();
        assert_eq!(with, without);
    });
}

#[test]
fn a_sort_that_may_not_use_the_disk_is_refused_once_it_is_too_large() {
    let db = Db::memory();
    let large = "x".repeat(1024 * 1024);
    for id in 0..110 {
        db.insert("c", &[doc! {"_id": id, "large": &large}]);
    }
    let pipeline = || vec![doc! {"$addFields": {"n": {"$multiply": ["$_id", -1]}}}, doc! {"$sort": {"n": 1}}];
    let refused = open(&db, "c", pipeline(), false).and_then(drain).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed);
    let mut step = open(&db, "c", pipeline(), true).unwrap();
    let mut context = ExecContext::new(&|| Ok(()));
    for id in (0..110).rev() {
        let row = step.next(&mut context).unwrap().expect("a row");
        assert_eq!(number(&row.document().to_document(), "_id"), id);
    }
}
