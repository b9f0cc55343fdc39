"""Model: compile, modes, threads, summary and copies."""

import copy
import io
import pickle
import re
import threading

import numpy as np
import pytest
import singa
from arrays import RANDOM, image
from conv_net import LABELS, Net, assert_same, compiled, states_of
from recorded import graphs
from singa import autograd, layer, model, models, opt, tensor

# --- compile and modes


def test_compile_makes_parameters_and_changes_nothing_else():
    device = singa.device.get_default_device()
    net = Net()
    net.set_optimizer(opt.SGD(lr=0.1))
    with pytest.raises(RuntimeError, match="no parameters yet"):
        net.save_states("never.zip")
    net.compile([image(5, 2, 6, 6)], is_train=True, use_graph=True, sequential=False)
    assert net.seen == [False]
    assert autograd.training
    assert net.graph_mode
    np.testing.assert_array_equal(net.bn.running_mean.numpy(), np.zeros(4))
    position = device.random_state()
    again = Net()
    again.compile([image(5, 2, 6, 6)])
    for ours, theirs in zip(net.get_params(), again.get_params(), strict=True):
        assert ours == theirs
    assert device.random_state() != position  # both calls of compile drew weights


def test_call_trains_or_infers():
    net = compiled()
    before = states_of(net)
    out, loss = net(image(5, 2, 6, 6), LABELS)
    assert out.shape == (5, 3)
    assert loss.size() == 1
    assert all(not np.array_equal(before[name], now) for name, now in states_of(net).items())
    net.eval()
    x, before = image(2, 2, 6, 6), states_of(net)
    y = net(x)
    np.testing.assert_array_equal(y.numpy(), net(x).numpy())
    assert_same(states_of(net), before)
    assert y.is_dummy()
    assert net.seen[1:] == [True, False, False]
    net.train()
    assert net.training
    net.compile([image(5, 2, 6, 6)], is_train=False)
    assert not net.training
    assert not autograd.training


def test_models_do_not_change_each_others_mode():
    one, other = compiled(), compiled()
    other.eval()
    assert not autograd.training
    before = states_of(one)
    one(image(5, 2, 6, 6), LABELS)  # it trains, although the flag was changed
    assert not np.array_equal(before["conv.W"], one.conv.W.numpy())
    assert not autograd.training


def test_modes_of_threads():
    net = compiled()
    x = image(2, 2, 6, 6)
    net.eval()
    expected = net(x).numpy()
    net.train()
    results, errors = [], []

    def infer():
        try:
            assert net.training  # uses the mode of the thread that created the model
            net.eval()
            for _ in range(20):
                results.append(net(x).numpy())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=infer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert net.training
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_threads_that_meet_a_new_layer_make_one_set_of_parameters():
    net, x = layer.Linear(50), image(2, 30)
    weights = []
    barrier = threading.Barrier(4)

    def use():
        barrier.wait()
        net(x)
        weights.append(net.W)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(weight) for weight in weights}) == 1


def test_batch_sizes_alternate():
    net = compiled()
    for batch in (5, 2, 5, 3):
        labels = tensor.from_numpy(np.zeros(batch, np.int32))
        assert net(image(batch, 2, 6, 6), labels)[0].shape == (batch, 3)
    net.eval()
    assert net(image(7, 2, 6, 6)).shape == (7, 3)


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: Net().compile([]), TypeError, "expected a list of tensors"),
        (lambda: Net().compile(image(1, 2, 6, 6)), TypeError, "expected a list of tensors"),
        (lambda: Net().compile([np.array(["a"])]), TypeError, "got ndarray"),
        (lambda: model.Model().compile([image(1)]), NotImplementedError, "forward"),
        (lambda: model.Model()(image(1)), NotImplementedError, "train_one_batch"),
        (lambda: Net().summary(), RuntimeError, r"call compile\(\) first"),
        (lambda: compiled().memory_plan(), RuntimeError, "no step was recorded"),
    ],
)
def test_wrong_use(use, error, message):
    with pytest.raises(error, match=message):
        use()


def test_failure_leaves_the_model_usable():
    net = compiled()
    with pytest.raises(ValueError, match=r"\(5, 3, 6, 6\)") as caught:
        net(image(5, 3, 6, 6), LABELS)
    assert "in layer conv (Conv2d)" in caught.value.__notes__
    with pytest.raises(IndexError, match="index 9 at position 0"):
        net(image(5, 2, 6, 6), tensor.from_numpy(np.full(5, 9, np.int32)))[1].numpy()
    assert np.isfinite(float(net(image(5, 2, 6, 6), LABELS)[1]))


def test_a_forgotten_mode_is_named():
    net = compiled()
    with pytest.raises(TypeError, match=r"'y': the model is in training mode; call eval\(\) first"):
        net(image(5, 2, 6, 6))
    net.graph()
    with pytest.raises(TypeError, match=r"call eval\(\) first"):
        net(image(5, 2, 6, 6))
    net.eval()
    with pytest.raises(TypeError, match=r"given: the model is in inference mode; call train\(\)"):
        net(image(5, 2, 6, 6), LABELS)
    with pytest.raises(TypeError, match=r"call train\(\) first"):
        net(image(5, 2, 6, 6), y=LABELS)
    with pytest.raises(TypeError) as caught:  # which neither mode takes
        net(image(5, 2, 6, 6), LABELS, LABELS)
    assert "mode" not in str(caught.value)


def test_a_model_without_training_step_names_the_mode():
    class Only(model.Model):
        def forward(self, x):
            return autograd.relu(x)

    net = Only()
    with pytest.raises(NotImplementedError, match=r"call eval\(\) first"):
        net(image(2))
    net.eval()
    net(image(2))


def test_a_type_error_of_the_step_itself_stays():
    class Broken(Net):
        def train_one_batch(self, x, y):
            return self.forward(x, y)

    net = Broken()
    net.compile([image(5, 2, 6, 6)])
    with pytest.raises(TypeError) as caught:
        net(image(5, 2, 6, 6), LABELS)
    assert "mode" not in str(caught.value)


@pytest.mark.parametrize("use_graph", [False, True])
def test_arrays_are_taken_as_tensors(use_graph):
    images = RANDOM.standard_normal((5, 2, 6, 6))  # float64
    labels = LABELS.numpy().astype(np.int64)
    results = []
    for x, y in ((image(5, 2, 6, 6), LABELS), (images, labels)):
        RANDOM.bit_generator.state = np.random.default_rng(5).bit_generator.state
        singa.seed(1)
        net = Net()
        net.set_optimizer(opt.SGD(lr=0.1))
        net.compile([x], use_graph=use_graph)
        net.drop.ratio = 0.0
        x = images if isinstance(x, np.ndarray) else tensor.from_numpy(images)
        losses = [float(net(x, y)[1]) for _ in range(3)] + [float(net(x, y=y)[1])]
        net.eval()
        results.append((losses, net(x).numpy().tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("use_graph", [False, True])
def test_arrays_of_float64_stay_so_in_a_network_of_float64(use_graph):
    x = RANDOM.standard_normal((4, 3))
    y = x.sum(1, keepdims=True) + 1e-12 * np.arange(4)[:, None]
    net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
    net.set_optimizer(opt.SGD(lr=0.1))
    net.compile([tensor.Tensor((4, 3), dtype="float64")], use_graph=use_graph)
    for name, p in net.get_params().items():
        p.set_value(1.0 if name.endswith("W") else 0.0)
    _, loss = net(x, y)
    assert loss.dtype == tensor.float64
    np.testing.assert_allclose(float(loss), np.mean((1e-12 * np.arange(4)) ** 2), rtol=1e-2)
    net.eval()
    np.testing.assert_allclose(net(x).numpy(), x.sum(1, keepdims=True), rtol=0, atol=1e-11)


@pytest.mark.parametrize("options", [{}, {"use_graph": True}, {"dtype": "bfloat16"}], ids=str)
def test_a_direct_training_step_is_a_call(options):
    """SINGA's metaclass records `net.train_one_batch(x, y)`, too."""

    class Seen(Net):
        not_settings = ("seen",)

    x, y = image(5, 2, 6, 6), LABELS.numpy()
    found = []
    for direct in (False, True):
        singa.seed(1)
        net = Seen()
        net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
        net.compile([x], **options)
        step = net.train_one_batch if direct else net
        losses = [float(step(x, y)[1]) for _ in range(5)]
        found.append((losses, len(net.seen), states_of(net)))
        if options.get("use_graph"):
            assert len(graphs(net)) == 1
    assert found[0][:2] == found[1][:2]
    assert_same(found[0][2], found[1][2])
    net.eval()
    with pytest.raises(RuntimeError, match=r"train\(\)"):  # without a tape
        net.train_one_batch(x, LABELS)


def test_a_training_step_of_another_class_stays_its_own():
    class Warm(Net):
        def train_one_batch(self, x, y):
            out, loss = super().train_one_batch(x, y)
            return out, loss * 3.0

        def warm_up(self, x, y):
            return super().train_one_batch(x, y)

    singa.seed(1)
    net, x = Warm(), image(5, 2, 6, 6)
    net.drop.ratio = 0.0
    net.set_optimizer(opt.SGD(lr=0.0))
    net.compile([x], use_graph=True)
    alone = float(net.warm_up(x, LABELS)[1])
    for _ in range(4):
        assert float(net.train_one_batch(x, LABELS)[1]) == pytest.approx(3 * alone, rel=1e-6)


def test_arrays_in_lists_are_taken_and_lists_of_others_stay():
    class Both(model.Model):
        def forward(self, xs, notes):
            notes.append(type(xs[0]).__name__)
            return autograd.add(*xs)

    net, notes = Both(), []
    net.eval()
    assert net([np.ones(2), np.ones(2)], notes).numpy().tolist() == [2, 2]
    assert notes == ["Tensor"]


# --- summary


def test_inputs_may_be_lists():
    class Steps(model.Model):
        def __init__(self):
            super().__init__()
            self.rnn = layer.RNN(3, 4)

        def forward(self, xs, h):
            return self.rnn(xs, h)[1]

    net = Steps()
    net.compile([[image(2, 3), image(2, 3)], image(2, 4)], is_train=False)
    assert net.rnn.Wx.shape == (3, 4)
    summary = net.summary(io.StringIO())
    assert [row.output for row in summary.rows] == ["(2, 4), (2, 4), (2, 4)"]
    assert summary.params == 3 * 4 + 4 * 4 + 4
    with pytest.raises(TypeError, match=r"expected examples of the inputs.*got int"):
        net.compile([[image(2, 3), 1], image(2, 4)])


def test_summary():
    net, text = compiled(), io.StringIO()
    before = states_of(net)
    summary = net.summary(text)
    assert text.getvalue().splitlines() == [
        "layer  type         output        parameters",
        "--------------------------------------------",
        "conv   Conv2d       (5, 4, 4, 4)          72",
        "bn     BatchNorm2d  (5, 4, 4, 4)           8",
        "drop   Dropout      (5, 64)                0",
        "fc     Linear       (5, 3)               195",
        "--------------------------------------------",
        "Net: 275 parameters; 8 more values of state",
    ]
    assert (summary.params, summary.trainable, summary.states) == (275, 275, 8)
    assert_same(states_of(net), before)
    net.fc.freeze()
    assert "195 of them frozen" in str(net.summary(io.StringIO()))


def test_a_summary_has_80_columns():
    class Deep(model.Model):
        def __init__(self):
            super().__init__()
            self.blocks_with_a_long_name = layer.Sequential(
                layer.Sequential(layer.Linear(3), layer.Linear(3)), layer.RNN(3, 4)
            )
            self.another_long_name_of_a_layer_that_has_more_than_fifty_letters = layer.Linear(2)

        def forward(self, xs, h):
            first, rnn = self.blocks_with_a_long_name
            hs, _ = rnn([first(x) for x in xs], h)
            return self.another_long_name_of_a_layer_that_has_more_than_fifty_letters(hs[0])

    net = Deep()
    net.compile([[image(2, 3), image(2, 3)], image(2, 4)], is_train=False)
    summary = net.summary(io.StringIO())
    lines = str(summary).splitlines()
    assert max(map(len, lines)) == 80
    for line, row in zip(lines[2:-2], summary.rows, strict=True):
        assert line.endswith(f" {row.params:,}")
    assert re.match(r"…\w*more_than_fifty_letters  Linear ", lines[-3])
    assert summary.rows[-1].name == "another_long_name_of_a_layer_that_has_more_than_fifty_letters"


# --- copies


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copy_goes_on_to_the_same_bits(how):
    net = compiled()
    batches = [(image(5, 2, 6, 6), LABELS) for _ in range(4)]
    for batch in batches[:2]:
        net(*batch)
    twin = copy.deepcopy(net) if how == "deepcopy" else pickle.loads(pickle.dumps(net))
    device = singa.device.get_default_device()
    state = device.random_state()
    for batch in batches[2:]:
        net(*batch)
    device.set_random_state(state)
    for batch in batches[2:]:
        twin(*batch)
    assert_same(states_of(twin), states_of(net))
    moments = twin.optimizer.get_states()["moments"]
    assert_same(
        {name: value.numpy() for name, value in net.optimizer.get_states()["moments"].items()},
        {name: value.numpy() for name, value in moments.items()},
    )
    twin.eval()
    assert net.training
