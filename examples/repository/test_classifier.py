from classifier import Classifier


def test_classifier(etscope_run):
    ran = etscope_run(Classifier().eval(), Classifier.example_inputs, backend="xnnpack")
    ran.assert_close(sqnr=60)  # dB, to PyTorch's outputs
    ran.assert_delegated(0.8)  # share of the nodes in delegates
    ran.assert_size(max="2%")  # above the baseline
    ran.assert_memory(max="2%")
