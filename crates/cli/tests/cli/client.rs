//! The client that the command line uses, against a server.

use kilim_bson::{RawValue, Value, doc};
use kilim_client::{Client, Fault, whole};

use crate::running::Running;

fn connect(server: &Running) -> Client {
    Client::connect(&*server.address).unwrap()
}

#[test]
fn a_cursor_goes_on_across_batches_and_ends_with_its_owner() {
    let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
    let mut client = connect(&server);
    let documents = (0..1000).map(|id| Value::Document(doc! {"_id": id}));
    client.run("d", doc! {"insert": "c", "documents": Value::Array(documents.collect())}).unwrap();
    let find = || doc! {"find": "c", "sort": {"_id": 1}, "batchSize": 64};
    let found = client.all("d", find()).unwrap();
    assert_eq!(found.len(), 1000);
    assert!(found.iter().enumerate().all(|(at, document)| whole(document.get("_id")) == Some(at as i64)));
    let open = |client: &mut Client| {
        let status = client.run("admin", doc! {"serverStatus": 1}).unwrap();
        let part = |value: Option<RawValue<'_>>, name: &str| {
            value
                .and_then(RawValue::as_document)
                .map(|part| part.to_document())
                .unwrap()
                .get(name)
                .map(RawValue::to_value)
        };
        let cursor = part(status.get("metrics"), "cursor").unwrap();
        let open = part(Some(cursor.as_raw()), "open").unwrap();
        whole(part(Some(open.as_raw()), "total").as_ref().map(Value::as_raw))
    };
    let first: Vec<_> = client.documents("d", find()).unwrap().take(3).collect();
    assert_eq!(first.len(), 3);
    assert_eq!(open(&mut client), Some(0));
}

#[test]
fn faults_carry_what_the_server_says() {
    let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
    let mut client = connect(&server);
    assert_eq!(whole(client.hello().unwrap().get("maxWireVersion")).map(|version| version >= 17), Some(true));
    let fault = client.run("d", doc! {"nonsense": 1}).unwrap_err();
    let failure = fault.failure().unwrap();
    assert_eq!((failure.code, &*failure.name), (59, "CommandNotFound"));
    client.run("d", doc! {"insert": "c", "documents": [{"_id": 1}]}).unwrap();
    let fault = client.run("d", doc! {"insert": "c", "documents": [{"_id": 1}]}).unwrap_err();
    assert_eq!(fault.code(), Some(11000));
    client.run("d", doc! {"createPattern": "c", "name": "n", "computed": {"set": {"a": 1}}}).unwrap();
    let change = doc! {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 2}}}]};
    let fault = client.run("d", change).unwrap_err();
    let info = fault.failure().and_then(|failure| failure.info.clone()).unwrap();
    assert_eq!(info.get("pattern").and_then(RawValue::as_str), Some("n"));
    server.end(libc::SIGTERM);
    assert!(matches!(client.hello(), Err(Fault::Lost(_))));
}
