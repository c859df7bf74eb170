"""Writes an ETRecord of a small model with the ExecuTorch release that is on the path."""

import copy
import sys

import torch
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.core import BundledProgram
from executorch.devtools.etrecord import generate_etrecord
from executorch.exir import to_edge


class SmallNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.conv = torch.nn.Conv1d(2, 2, 3)

    def forward(self, x):
        left, right = torch.split(torch.relu(self.linear(x)), 4, -1)
        return torch.softmax(self.conv(left)[:, :, :1] + right, -1)


torch.manual_seed(0)
model = SmallNet().eval()
inputs = (torch.randn(2, 2, 8),)
exported = torch.export.export(model, inputs)
edge = to_edge(exported)
edge_copy = copy.deepcopy(edge)
program = edge.to_executorch()
case = MethodTestCase(inputs, [model(*inputs).detach()])
bundled = BundledProgram(program, [MethodTestSuite("forward", [case])])
modern = int(sys.argv[1].split(".")[0]) >= 1
generate_etrecord(sys.argv[2], edge_copy, bundled, exported if modern else {"aten": exported})
