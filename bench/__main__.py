"""Run every bench and print its table."""

from bench import (
    channels,
    cluster,
    dialects,
    engine,
    extract,
    page,
    pdf,
    proof,
    rendering,
    scale,
    serve,
    store,
    stream,
    thread,
    verify,
)

if __name__ == "__main__":
    dialects.main()
    rendering.main()
    thread.main()
    pdf.main()
    verify.main()
    engine.main()
    proof.main()
    extract.main()
    stream.main()
    store.main()
    channels.main()
    cluster.main()
    scale.main()
    serve.main()
    page.main()
