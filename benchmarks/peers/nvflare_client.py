"""A client of NVFlare's FedAvg: its training script, by NVFlare's Client API."""

import nvflare.client as flare

from peers.emulated import loaded, train


def main() -> None:
    """Train each model that comes, and send it back with the samples it has seen."""
    flare.init()
    learner = int(flare.get_site_name().removeprefix("site-")) - 1
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        model = loaded(received.params)
        samples = train(model, learner)
        flare.send(
            flare.FLModel(
                params=model.state_dict(), meta={"NUM_STEPS_CURRENT_ROUND": samples}
            )
        )


if __name__ == "__main__":
    main()
