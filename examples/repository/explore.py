# %% A cell of a notebook: export the model, run it, and see where its time goes.
from classifier import Classifier

from etscope.explain import explain
from etscope.export import export
from etscope.run import run

exported = export(Classifier().eval(), Classifier.example_inputs, backend="xnnpack")
program, record = exported.save("exported", bundle=False)
inspector = run(program, etrecord=record).inspector()
inspector.print_data_tabular()
for method in explain(inspector.trace):
    for finding in method.findings:
        print(finding.sentence)
